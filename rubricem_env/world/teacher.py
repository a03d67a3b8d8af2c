"""The almanac's scripted expert: writes a scaffold trace turn by turn, in reaction to what the tools really show.

It knows the truth of its question, and says nothing that it has not been shown unless a fault makes it. Its language
is small and repeats itself, so that a policy of a few million parameters can learn it.
"""

from collections.abc import Sequence

from rubricem_env.domain.query import AnswerFormat
from rubricem_env.world.errands import Errand, Progress, Target, follow, plan_errands, wanted_duties, wanted_needs
from rubricem_env.world.faults import Faults, Slips, draw_slips
from rubricem_env.world.findings import Finding, find_all, set_aside
from rubricem_env.world.questions import Question
from rubricem_env.world.truth import ImplicitNeed, Need

NO_SLIPS = Slips()
UNKNOWN = "unknown"


class AlmanacTeacher:
    """The expert for one question. The same observations give the same turns: it keeps no state of its own."""

    def __init__(self, question: Question, slips: Slips = NO_SLIPS) -> None:
        self.question = question
        self.slips = slips

    @classmethod
    def for_seed(cls, question: Question, faults: Faults, *, seed: int) -> "AlmanacTeacher":
        """The expert with the faults that are drawn for this question and seed."""
        return cls(question, draw_slips(question, faults, seed=seed))

    def turn(self, observations: Sequence[str]) -> str:
        """The next turn, after all observations so far; it answers once there is nothing left to search for."""
        progress = follow(plan_errands(self.question, self.slips), observations)
        if not observations:
            return self._plan(progress.ahead) + call_text(progress.ahead[0])
        opening = self._evaluation(progress)
        if progress.ahead:
            return opening + call_text(progress.ahead[0])
        findings = find_all(self.question, self.slips, progress=progress)
        return opening + review_text(findings, self.question) + answer_text(findings, self.question, slips=self.slips)

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

    def _evaluation(self, progress: Progress) -> str:
        doubts = "".join(f" {name} is out." for name in set_aside(self.question, self.slips, progress=progress))
        step = "" if progress.ahead else " Now review."
        said = reading_text(self.question, self.slips, progress=progress)
        return f"<think>I read the result.{doubts}</think><state_evaluation>{said}{step}</state_evaluation>"


def reading_text(question: Question, slips: Slips, *, progress: Progress) -> str:
    """What the last result brought, snippet by snippet, and the next search."""
    new = {shown.snippet_id: shown.document_id for shown in progress.shown[len(progress.shown) - progress.num_new :]}
    fresh = [found for found in find_all(question, slips, progress=progress) if _is_read_off(found)]
    said = [f"{found.sources[-1]}: {found.sentence}" for found in fresh if new.keys() & set(found.sources)]
    asked = {duty.aspect: duty for duty in wanted_duties(question, slips) if duty.kind == "stated"}
    for aspect, duty in asked.items():
        said += [f"{name}: Also state the {aspect}." for name, page in new.items() if page in duty.convention_ids]
    if progress.ahead:
        said.append(f"Next: {progress.ahead[0].query}.")
    return " ".join(said) or "Nothing new."


def call_text(errand: Errand) -> str:
    """The call as the policy writes it."""
    limit = f' limit="{errand.limit}"' if errand.limit else ""
    return f'<call_tool name="{errand.tool}"{limit}>{errand.query}</call_tool>'


def review_text(findings: Sequence[Finding], question: Question) -> str:
    """Each need with its source, or as missing; then what the answer will state."""
    lines = " ".join(
        f"Missing: the {_planned_title(found.target, question)}."
        if found.is_gap
        else f"{found.sentence} ({', '.join(found.sources)})"
        for found in findings
    )
    stated = ", ".join(f"the {found.target.title}" for found in findings if not found.is_gap) or "the gap"
    return f"<review><rubric_review>{lines}</rubric_review><writing_plan>State {stated}, with sources.</writing_plan></review>"


def answer_text(findings: Sequence[Finding], question: Question, *, slips: Slips) -> str:
    """The answer in the question's format: one boxed value, a paragraph, or a short report."""
    if question.answer_format is AnswerFormat.EXACT:
        facts = [found for found in findings if isinstance(found.target, Need)]
        value = UNKNOWN if facts[-1].is_gap else facts[-1].value
        return f"<answer>\\boxed{{{value}}}</answer>"
    claims = [_claim(found) for found in findings if not found.is_gap] or ["The sources do not say."]
    if slips.forgets_citation:
        claims[0] = next((found.sentence for found in findings if not found.is_gap), claims[0])
    heading = "# Report\n" if question.answer_format is AnswerFormat.LONG else ""
    return f"<answer>{heading}{' '.join(claims)}</answer>"


def _claim(found: Finding) -> str:
    return f'<cite id="{", ".join(found.sources)}">{found.sentence}</cite>' if found.sources else found.sentence


def _is_read_off(found: Finding) -> bool:
    """Whether it stands on a page: a verdict follows from others."""
    return not found.is_gap and not (isinstance(found.target, Need) and found.target.kind == "verdict")


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
