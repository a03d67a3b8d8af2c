"""The almanac's scripted expert: writes traces turn by turn, in reaction to the observations of the tools.

It knows the truth of its question, but says only what a page has shown, unless one of its faults makes it. Its language
is small and repetitive, so that a policy of a few million parameters can learn it. `lesson_after` is the scripted form of
a reflection: what an attempt can teach the next one.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rubricem_env.domain.base import Frozen, UnitScore
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.tools.spec import GOOGLE_SEARCH, SNIPPET_SEARCH
from rubricem_env.world.entities import CAUSES, DOMAINS, FIRST_WORDS, SECOND_WORDS, pick, shuffled
from rubricem_env.world.judge import Evidence
from rubricem_env.world.questions import ImplicitNeed, Need, Question, Trap, mentions

INVENTED_VALUES = 20


class Faults(Frozen):
    """The probability of each fault in a trace, drawn independently; the default is an expert without faults."""

    skip_need: UnitScore = 0.0
    """Leaves out one need, from the plan to the answer; nothing where the question has only one."""
    repeat_query: UnitScore = 0.0
    """Makes its first search a second time."""
    trust_stale: UnitScore = 0.0
    """Takes the first wrong value that a shown page offers for a need; nothing where no page has one."""
    claim_unfound: UnitScore = 0.0
    """Does not search for its last fact and states an invented value, with the citation of a page that lacks it."""
    forget_citation: UnitScore = 0.0
    """States its first claim without a source. An exact answer cites nothing anyway."""
    miss_convention: UnitScore = 0.0
    """Neither searches for the convention of the domain nor follows it."""


class Slips(NamedTuple):
    """The faults of one trace; the default is none."""

    skipped: str = ""
    """The id of the need that is left out."""
    unfounded: str = ""
    """The id of the need whose value is invented."""
    inventions: tuple[str, ...] = ()
    """Candidates for the invented value; the first that no page has shown is used."""
    repeats_query: bool = False
    trusts_stale: bool = False
    forgets_citation: bool = False
    misses_convention: bool = False


def draw_slips(question: Question, faults: Faults, *, seed: int, world: str = "") -> Slips:
    """The faults of the trace for this question, world and seed: the same on every machine.

    A question's id is the same domain and kind in every world: without the world it would have the same faults in each.
    """
    key = int.from_bytes(hashlib.sha256(f"{world}{question.id}".encode()).digest()[:8])
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, key])))
    # Every chance is drawn, so that turning one knob leaves the other faults as they were.
    chances = (rng.random() < chance for chance in faults.model_dump().values())
    skips, repeats, trusts, claims, forgets, misses = chances
    used = {name for need in question.truth.needs for name in need.depends_on}
    skippable = [need for need in question.truth.needs if need.id not in used and len(question.truth.needs) > 1]
    skipped = pick(rng, skippable).id if skippable and skips else ""
    facts = [need for need in question.truth.needs if need.kind != "verdict" and need.id != skipped]
    return Slips(
        skipped=skipped,
        unfounded=facts[-1].id if claims else "",
        inventions=_inventions(facts[-1], rng) if claims else (),
        repeats_query=repeats,
        trusts_stale=trusts,
        forgets_citation=forgets,
        misses_convention=misses and bool(question.truth.implicit_needs),
    )


def _inventions(need: Need, rng: np.random.Generator) -> tuple[str, ...]:
    """Values of the same kind, none of them right."""
    if need.kind == "cause":
        values = list(CAUSES)
    elif need.kind == "link":
        values = [f"{pick(rng, FIRST_WORDS)} {pick(rng, SECOND_WORDS)}" for _ in range(INVENTED_VALUES)]
    else:
        attribute = next(a for domain in DOMAINS for a in domain.attributes if a.name == need.attribute)
        steps = range(attribute.low, attribute.high + 1, attribute.step)
        values = [f"{number} {attribute.unit}" for number in steps]
    return tuple(value for value in shuffled(rng, values) if value != need.value)[:INVENTED_VALUES]


SOUND = "Keep to the plan and name a source for each fact."
"""The takeaway of an attempt in which no fault was seen."""


class Lesson(NamedTuple):
    """The two blocks of a reflection: criteria, and what to do about them. Neither has a value that only a page states."""

    rubrics: str
    takeaways: str


def lesson_of(question: Question) -> Lesson:
    """How to do better at questions of this kind: the duties of the domain, and where to look for them."""
    if question.answer_format is AnswerFormat.EXACT:
        return Lesson("The answer gives one exact value of a current page.", "Follow each link, step by step.")
    duties = question.truth.implicit_needs
    aspects = dict.fromkeys(duty.aspect for duty in duties if duty.kind == "stated")
    closings = (f"says that all figures are {duty.value}" for duty in duties if duty.kind == "closing")
    owed = " and ".join([f"states the {aspect}" for aspect in aspects] + list(closings))
    return Lesson(f"The answer {owed}.", f"Search the reporting convention of {question.domain} and follow it.")


def lesson_after(
    question: Question, seen: Evidence, *, overlooks: Callable[[Lesson], bool] = lambda fault: False
) -> Lesson:
    """What this attempt teaches: what the answer owes, then each fault that is not overlooked."""
    # A step of a chain is named by its attribute, since its title would tell the step before.
    named = [need.attribute if need.depends_on else need.title for need in _owed(question) if need.kind != "verdict"]
    asked = ", ".join(f"the {name}" for name in named)
    faults = [fault for fault in find_faults(question, seen) if not overlooks(fault)]
    rubrics = [f"The answer states {asked}.", *(fault.rubrics for fault in faults)]
    takeaways = [fault.takeaways for fault in faults] or [SOUND]
    return Lesson(" ".join(rubrics), "\n".join(takeaways))


def find_faults(question: Question, seen: Evidence) -> Iterator[Lesson]:
    """What went wrong, the gravest first; nothing where all is well."""
    if any(trap.has_caught(seen.answer) for trap in question.truth.traps):
        yield Lesson("The answer avoids the stale value.", "Trust the ruling and the current edition.")
    if any(not need.is_met_by(seen.answer) for need in _owed(question)):
        yield Lesson("No fact that is asked for is missing.", "Search each fact by its name and copy its value.")
    if any(not duty.is_met_by(seen.answer) for duty in question.truth.implicit_needs):
        yield lesson_of(question)
    if question.answer_format is not AnswerFormat.EXACT and not seen.known_citations:
        yield Lesson("The answer cites its sources.", "Cite a snippet for each claim.")
    if seen.repeated_calls:
        yield Lesson("No search is made twice.", "Search for something new each time.")


def _owed(question: Question) -> tuple[Need, ...]:
    """The needs that the answer must state: of a chain with an exact answer, the last."""
    return question.truth.needs[-1:] if question.answer_format is AnswerFormat.EXACT else question.truth.needs


Target = Need | ImplicitNeed
MAX_SEARCHES = 9
"""One less than the rounds of data generation: the last round answers."""
RETRY_LIMIT = "10"
_SNIPPET = re.compile(r'<snippet id="(S_\d+)">(?:[^\n]*?https://almanac\.example/(\w+)\n)?(.*?)</snippet>', re.DOTALL)


class Errand(NamedTuple):
    """One search, and the needs that it is to meet."""

    tool: str
    query: str
    targets: tuple[Target, ...]
    limit: str = ""
    """The limit passed to the tool, if any: a second try looks further down."""

    @property
    def grounds(self) -> tuple[str, ...]:
        """The ids of the needs that must be met before it."""
        return tuple(name for target in self.targets if isinstance(target, Need) for name in target.depends_on)


class Shown(NamedTuple):
    """A snippet that a tool has shown."""

    snippet_id: str
    document_id: str
    text: str


class ExpertProgress(NamedTuple):
    """The searches ahead, and the snippets shown so far."""

    ahead: tuple[Errand, ...]
    shown: tuple[Shown, ...]
    """Of all observations, in order."""
    new: tuple[Shown, ...]
    """Of the last observation."""

    def source_of(self, document_ids: Sequence[str]) -> Shown | None:
        """The first snippet shown from any of the documents."""
        return next((shown for shown in self.shown if shown.document_id in document_ids), None)


def plan_errands(question: Question, slips: Slips) -> tuple[Errand, ...]:
    """One search for each subject, one for each step of a chain, then the convention and what it asks for."""
    needs = [need for need in wanted_needs(question, slips) if need.kind != "verdict" and need.id != slips.unfounded]
    errands = [*_direct(needs), *(Errand(GOOGLE_SEARCH, n.search_terms, (n,)) for n in needs if n.depends_on)]
    if slips.repeats_query:
        errands = [*errands[:1], *errands]
    duties = wanted_duties(question, slips)
    if duties:
        closings = tuple(duty for duty in duties if duty.kind == "closing")
        errands.append(Errand(SNIPPET_SEARCH, duties[0].convention_search_terms, closings))
        errands += [Errand(SNIPPET_SEARCH, duty.search_terms, (duty,)) for duty in duties if duty.kind == "stated"]
    # An expert that invents its only value still searches first, for something else.
    return tuple(errands) or (Errand(SNIPPET_SEARCH, f"reporting convention {question.domain}", ()),)


def wanted_needs(question: Question, slips: Slips) -> tuple[Need, ...]:
    """The needs that the expert intends to meet."""
    return tuple(need for need in question.truth.needs if need.id != slips.skipped)


def wanted_duties(question: Question, slips: Slips) -> tuple[ImplicitNeed, ...]:
    """The unspoken needs that it intends to meet."""
    return () if slips.misses_convention else question.truth.implicit_needs


def follow(errands: Sequence[Errand], observations: Sequence[str]) -> ExpertProgress:
    """Go through the searches with the observations of the tools.

    A need without a source is searched for once more; searches that depend on a need without a source are given up.
    """
    ahead, shown, new = list(errands), list[Shown](), list[Shown]()
    for number, observation in enumerate(observations, 1):
        errand = ahead.pop(0)
        new = [Shown(*found) for found in _SNIPPET.findall(observation)]
        shown += new
        pages = {snippet.document_id for snippet in shown}
        lacking = [target for target in errand.targets if pages.isdisjoint(target.document_ids)]
        if errand.limit:
            lost = {target.id for target in lacking}
            ahead = [later for later in ahead if lost.isdisjoint(later.grounds)]
        else:
            ahead = [Errand(SNIPPET_SEARCH, target.search_terms, (target,), RETRY_LIMIT) for target in lacking] + ahead
        ahead = ahead[: MAX_SEARCHES - number]
    return ExpertProgress(tuple(ahead), tuple(shown), tuple(new))


def _direct(needs: Sequence[Need]) -> Iterator[Errand]:
    """One search for each subject, by its name and all the words that are asked of it."""
    subjects = dict.fromkeys(need.subject_id for need in needs if not need.depends_on)
    for subject in subjects:
        targets = tuple(need for need in needs if need.subject_id == subject and not need.depends_on)
        words = dict.fromkeys(word for target in targets for word in target.search_terms.split())
        yield Errand(GOOGLE_SEARCH, " ".join(words), targets)


_PREFERRED = ("stale", "rival", "lookalike", "hostile")


class NeedAnswer(NamedTuple):
    """What the expert says of one need."""

    target: Target
    sentence: str
    """Ends in a full stop. Empty for a gap."""
    value: str
    sources: tuple[str, ...]
    """Ids of shown snippets."""

    @property
    def is_gap(self) -> bool:
        return not self.sentence


def find_all(question: Question, slips: Slips, *, progress: ExpertProgress) -> tuple[NeedAnswer, ...]:
    """One answer for each need that the expert intends to meet, in the order of the question, conventions last."""
    trusted = _trusted_trap(question, progress) if slips.trusts_stale else None
    found: dict[str, NeedAnswer] = {}
    for need in wanted_needs(question, slips):
        if need.id == slips.unfounded:
            found[need.id] = _invent(need, slips, progress=progress)
        elif trusted is not None and need.id == trusted[0].need_id:
            found[need.id] = _say(need, trusted[0].wrong_value, sources=(trusted[1].snippet_id,))
        else:
            found[need.id] = _look_up(need, progress, found=found)
    duties = (_look_up(duty, progress, found=found) for duty in wanted_duties(question, slips))
    return (*found.values(), *duties)


def _look_up(target: Target, progress: ExpertProgress, *, found: dict[str, NeedAnswer]) -> NeedAnswer:
    if isinstance(target, Need) and target.kind == "verdict":
        grounds = [found[name] for name in target.depends_on if name in found]
        is_founded = len(grounds) == len(target.depends_on) and not any(ground.is_gap for ground in grounds)
        sources = tuple(dict.fromkeys(source for ground in grounds for source in ground.sources))
        return NeedAnswer(target, target.sentence if is_founded else "", target.value, sources)
    source = progress.source_of(target.document_ids)
    return NeedAnswer(target, target.sentence if source else "", target.value, (source.snippet_id,) if source else ())


def _invent(need: Need, slips: Slips, *, progress: ExpertProgress) -> NeedAnswer:
    """A value that no page has shown, with the last page as its alleged source."""
    pages = " ".join(shown.text for shown in progress.shown)
    value = next(value for value in slips.inventions if not mentions(pages, value))
    return _say(need, value, sources=tuple(shown.snippet_id for shown in progress.shown[-1:]))


def _say(need: Need, value: str, *, sources: tuple[str, ...]) -> NeedAnswer:
    return NeedAnswer(need, need.sentence.replace(need.value, value), value, sources)


def _trusted_trap(question: Question, progress: ExpertProgress) -> tuple[Trap, Shown] | None:
    """The first trap that a page has set, the misleading kinds first."""
    for kind in _PREFERRED:
        for trap in question.truth.traps:
            source = progress.source_of(trap.document_ids)
            if trap.kind == kind and source is not None and mentions(source.text, trap.wrong_value):
                return trap, source
    return None


NO_SLIPS = Slips()
UNKNOWN = "unknown"


class AlmanacTeacher:
    """The expert for one question. The same observations give the same turns: it has no other state.

    With `is_flat` it writes plain think-and-act turns, without plan and review, for comparison: the same searches and
    the same answer.
    """

    def __init__(self, question: Question, slips: Slips = NO_SLIPS, *, is_flat: bool = False) -> None:
        self.question = question
        self.slips = slips
        self.is_flat = is_flat

    def turn(self, observations: Sequence[str]) -> str:
        """The next turn, after all observations so far; it answers when there is nothing left to search for."""
        progress = follow(plan_errands(self.question, self.slips), observations)
        if self.is_flat:
            opening = f"<think>{reading_text(self.question, self.slips, progress=progress)}</think>"
        else:
            opening = self._evaluation(progress) if observations else self._plan(progress.ahead)
        if progress.ahead:
            return opening + call_text(progress.ahead[0])
        findings = find_all(self.question, self.slips, progress=progress)
        review = "" if self.is_flat else review_text(findings, self.question)
        return opening + review + answer_text(findings, self.question, slips=self.slips)

    def _plan(self, errands: Sequence[Errand]) -> str:
        needs = wanted_needs(self.question, self.slips)
        wants = "; ".join(f"the {_planned_title(need, self.question)}" for need in needs)
        has_duties = bool(wanted_duties(self.question, self.slips))
        implicit = f"the convention of {self.question.domain}" if has_duties else "none"
        rubric = f"{wants}; the convention" if has_duties else wants
        queries = dict.fromkeys(query for errand in errands if (query := _planned_query(errand)))
        steps = " ".join(f"{place}. {query}." for place, query in enumerate(queries, start=1))
        return (
            f"<think>This needs {len(needs)} facts.</think>"
            f"<structured_plan><deep_analysis>Explicit: {wants}. Implicit: {implicit}.</deep_analysis>"
            f"<rubric>States {rubric}. Avoids a stale value.</rubric>"
            f"<research_plan>{steps}</research_plan></structured_plan>"
        )

    def _evaluation(self, progress: ExpertProgress) -> str:
        # A careful reader distrusts an old edition and the side that lost a dispute.
        traps = () if self.slips.trusts_stale else self.question.truth.traps
        wrong = {name for trap in traps if trap.kind in ("stale", "rival") for name in trap.document_ids}
        doubts = "".join(f" {shown.snippet_id} is out." for shown in progress.new if shown.document_id in wrong)
        step = "" if progress.ahead else " Now review."
        said = reading_text(self.question, self.slips, progress=progress)
        return f"<think>I read the result.{doubts}</think><state_evaluation>{said}{step}</state_evaluation>"


def reading_text(question: Question, slips: Slips, *, progress: ExpertProgress) -> str:
    """What the last result brought, snippet by snippet, and the next search."""
    new = {shown.snippet_id: shown.document_id for shown in progress.new}
    # A verdict is not read on a page but concluded from other needs.
    lines = [
        (found.sources[-1], found.sentence)
        for found in find_all(question, slips, progress=progress)
        if not found.is_gap and found.target.kind != "verdict" and new.keys() & set(found.sources)
    ]
    asked = {duty.aspect: duty for duty in wanted_duties(question, slips) if duty.kind == "stated"}
    for aspect, duty in asked.items():
        lines += [(name, f"Also state the {aspect}.") for name, page in new.items() if page in duty.convention_ids]
    # In the order of the snippets: a very small model learns this order, and hardly any other.
    said = [f"{name}: {line}" for name, line in sorted(lines, key=lambda line: int(line[0].removeprefix("S_")))]
    if progress.ahead:
        said.append(f"Next: {progress.ahead[0].query}.")
    return " ".join(said) or "Nothing new."


def call_text(errand: Errand) -> str:
    """The call as the policy writes it."""
    limit = f' limit="{errand.limit}"' if errand.limit else ""
    return f'<call_tool name="{errand.tool}"{limit}>{errand.query}</call_tool>'


def review_text(findings: Sequence[NeedAnswer], question: Question) -> str:
    """Each need with its source, or as missing; then what the answer will state."""
    lines = " ".join(
        f"Missing: the {_planned_title(found.target, question)}."
        if found.is_gap
        else f"{found.sentence} ({', '.join(found.sources)})"
        for found in findings
    )
    stated = ", ".join(f"the {found.target.title}" for found in findings if not found.is_gap) or "the gap"
    told = f"State {stated}, with sources."
    if question.answer_format is AnswerFormat.EXACT:
        told = _goal(findings).sentence or f"The value is {UNKNOWN}."
    return f"<review><rubric_review>{lines}</rubric_review><writing_plan>{told}</writing_plan></review>"


def answer_text(findings: Sequence[NeedAnswer], question: Question, *, slips: Slips) -> str:
    """The answer in the question's format: one boxed value, a paragraph, or a short report."""
    if question.answer_format is AnswerFormat.EXACT:
        goal = _goal(findings)
        return f"<answer>\\boxed{{{UNKNOWN if goal.is_gap else goal.value}}}</answer>"
    claims = [
        f'<cite id="{", ".join(found.sources)}">{found.sentence}</cite>' if found.sources else found.sentence
        for found in findings
        if not found.is_gap
    ] or ["The sources do not say."]
    if slips.forgets_citation:
        claims[0] = next((found.sentence for found in findings if not found.is_gap), claims[0])
    heading = "# Report\n" if question.answer_format is AnswerFormat.LONG else ""
    return f"<answer>{heading}{' '.join(claims)}</answer>"


def _goal(findings: Sequence[NeedAnswer]) -> NeedAnswer:
    """What an exact question asks for: the last of its needs."""
    return next(found for found in reversed(findings) if isinstance(found.target, Need))


def _planned_title(need: Target, question: Question) -> str:
    """The need as it can be named before anything is known: a step of a chain has no subject yet."""
    if isinstance(need, ImplicitNeed):
        return need.title
    if need.kind == "verdict":
        return need.title.removeprefix("which has the ")
    if not need.depends_on:
        return need.title
    before = next(other for other in question.truth.needs if other.id == need.depends_on[0])
    return f"{need.attribute} of the {before.attribute}"


def _planned_query(errand: Errand) -> str:
    """The search as it can be named before anything is known; empty for one that only the convention will call for."""
    for target in errand.targets:
        if isinstance(target, Need) and target.depends_on:
            return target.attribute
        if isinstance(target, ImplicitNeed) and target.kind == "stated":
            return ""
    return errand.query
