"""The almanac's scripted expert: writes traces turn by turn, in reaction to the observations of the tools.

It knows the truth of its question, but says only what a page has shown, unless one of its faults makes it. Its language
is small and repetitive, so that a policy of a few million parameters can learn it.
"""

from collections.abc import Sequence

from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.world.expert_faults import Slips
from rubricem_env.world.expert_findings import NeedAnswer, find_all
from rubricem_env.world.expert_searches import (
    MAX_SEARCHES,
    Errand,
    ExpertProgress,
    Target,
    follow,
    plan_errands,
    wanted_duties,
    wanted_needs,
)
from rubricem_env.world.needs import ImplicitNeed, Need
from rubricem_env.world.questions import Question

NO_SLIPS = Slips()
UNKNOWN = "unknown"


class AlmanacTeacher:
    """The expert for one question. The same observations give the same turns: it has no other state.

    With `is_flat` it writes plain think-and-act turns, without plan and review, for comparison: the same searches and
    the same answer.
    """

    def __init__(
        self,
        question: Question,
        slips: Slips = NO_SLIPS,
        *,
        is_flat: bool = False,
        max_searches: int = MAX_SEARCHES,
    ) -> None:
        self.question = question
        self.slips = slips
        self.is_flat = is_flat
        self._max_searches = max_searches

    def turn(self, observations: Sequence[str]) -> str:
        """The next turn, after all observations so far; it answers when there is nothing left to search for."""
        progress = follow(plan_errands(self.question, self.slips), observations, max_searches=self._max_searches)
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
        (finding.sources[-1], finding.sentence)
        for finding in find_all(question, slips, progress=progress)
        if not finding.is_gap and finding.target.kind != "verdict" and new.keys() & set(finding.sources)
    ]
    stated_duties = {duty.aspect: duty for duty in wanted_duties(question, slips) if duty.kind == "stated"}
    for aspect, duty in stated_duties.items():
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
        f"Missing: the {_planned_title(finding.target, question)}."
        if finding.is_gap
        else f"{finding.sentence} ({', '.join(finding.sources)})"
        for finding in findings
    )
    stated = ", ".join(f"the {finding.target.title}" for finding in findings if not finding.is_gap) or "the gap"
    plan = f"State {stated}, with sources."
    if question.answer_format is AnswerFormat.EXACT:
        plan = _goal(findings).sentence or f"The value is {UNKNOWN}."
    return f"<review><rubric_review>{lines}</rubric_review><writing_plan>{plan}</writing_plan></review>"


def answer_text(findings: Sequence[NeedAnswer], question: Question, *, slips: Slips) -> str:
    """The answer in the question's format: one boxed value, a paragraph, or a short report."""
    if question.answer_format is AnswerFormat.EXACT:
        goal = _goal(findings)
        return f"<answer>\\boxed{{{UNKNOWN if goal.is_gap else goal.value}}}</answer>"
    claims = [
        f'<cite id="{", ".join(finding.sources)}">{finding.sentence}</cite>' if finding.sources else finding.sentence
        for finding in findings
        if not finding.is_gap
    ] or ["The sources do not say."]
    if slips.forgets_citation:
        claims[0] = next((finding.sentence for finding in findings if not finding.is_gap), claims[0])
    heading = "# Report\n" if question.answer_format is AnswerFormat.LONG else ""
    return f"<answer>{heading}{' '.join(claims)}</answer>"


def _goal(findings: Sequence[NeedAnswer]) -> NeedAnswer:
    """What an exact question asks for: the last of its needs."""
    return next(finding for finding in reversed(findings) if isinstance(finding.target, Need))


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
