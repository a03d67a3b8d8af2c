"""What can be read off the research: whether queries differ and aim, failures are met, and results are weighed."""

from rubricem_env.domain.rubric import Polarity
from rubricem_env.domain.stage import Stage
from rubricem_env.domain.tool import ToolStatus
from rubricem_env.judge.rules.check import Check, Marked
from rubricem_env.judge.rules.facts import Facts
from rubricem_env.judge.rules.terms import cover, find_quote


def research_checks(subject: str) -> tuple[Check, ...]:
    """The rules of the Research stage."""
    return (
        Check(
            Stage.RESEARCH,
            "Queries aim at the question's subjects",
            f"The searches together name every subject of the question: {subject}.",
            _aims,
            weight=3.0,
        ),
        Check(
            Stage.RESEARCH,
            "Each search asks something new",
            f"No search about {subject} repeats an earlier one; a single repetition is partial.",
            _asks_anew,
        ),
        Check(
            Stage.RESEARCH,
            "Results are weighed by name",
            f"After results on {subject}, the state evaluation says which snippet brought what.",
            _weighs,
        ),
        Check(
            Stage.RESEARCH,
            "Leaves a failed search unanswered",
            f"A search about {subject} failed or found nothing, and no different one followed; without success is partial.",
            _gives_up,
            polarity=Polarity.NEGATIVE,
        ),
    )


def _aims(facts: Facts) -> Marked:
    covered = cover(facts.question_terms, " . ".join(facts.queries))
    if not facts.queries:
        return Marked(0, "no search was made")
    missing = f"; no search names {', '.join(covered.missing[:6])}" if covered.missing else ""
    return Marked(covered.mark(0.75, 0.35), f"{_list_queries(facts)}{missing}")


def _asks_anew(facts: Facts) -> Marked:
    if not facts.attempts:
        return Marked(0, "no search was made")
    repeats = len(facts.attempts) - len({attempt.call.identity for attempt in facts.attempts})
    return Marked(
        max(0, 2 - repeats),
        f"{repeats} of {len(facts.attempts)} searches repeat an earlier one: {_list_queries(facts)}",
    )


def _weighs(facts: Facts) -> Marked:
    results = sum(1 for a in facts.attempts if a.status is None or not a.status.is_error)
    naming = [text for text in facts.evaluations if facts.known_ids(text)]
    if not results:
        return Marked(0, "no search brought a result to weigh")
    share = len(naming) / results
    quote = find_quote(naming[0]) if naming else find_quote(" ".join(facts.evaluations))
    return Marked(
        2 if share >= 0.75 else int(share > 0),
        f"{len(naming)} evaluations for {results} results name a snippet: {quote}",
    )


def _gives_up(facts: Facts) -> Marked:
    """The worst of the failed searches; a flaw, so 0 is good."""
    worst = Marked(0, f"no search was left failed: {_list_queries(facts)}")
    for place, attempt in enumerate(facts.attempts):
        if attempt.status in (None, ToolStatus.OK):
            continue
        later = [a for a in facts.attempts[place + 1 :] if a.call.identity != attempt.call.identity]
        mark = 2 if not later else int(all(a.status is not ToolStatus.OK for a in later))
        if mark > worst.mark:
            worst = Marked(
                mark,
                f"after “{attempt.call.query[:120]}” ended as {attempt.status}, {len(later)} other searches followed",
            )
    return worst


def _list_queries(facts: Facts) -> str:
    shown = "; ".join(f"“{query[:80]}”" for query in facts.queries[:4])
    return shown or "no search was made"
