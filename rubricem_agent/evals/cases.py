"""The cases of a run: every example in every epoch, and a logged answer as it is graded."""

from collections.abc import Sequence

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.extraction import Extracted, extract, judged_text
from rubricem_agent.evals.grading import Case
from rubricem_records.evaluations.logs import AnswerRecord, CaseKey


def case_of(loaded: Loaded, record: AnswerRecord) -> Case:
    """The answer as it is graded. The same record always gives the same case, also when scores are recomputed."""
    return Case(loaded.example(record.id), loaded.gold[record.id], extracted(loaded, record), record.trajectory)


def extracted(loaded: Loaded, record: AnswerRecord) -> Extracted:
    """The text that is judged, by the rules of the mode."""
    if record.trajectory is not None:
        return extract(record.trajectory, loaded.rules)
    return judged_text(Extracted(record.given or "", "given answer"), loaded.rules)


def case_keys(ids: Sequence[str], epochs: int) -> tuple[CaseKey, ...]:
    """Every example of the subset in every epoch, epoch by epoch."""
    return tuple(CaseKey(example_id, epoch) for epoch in range(epochs) for example_id in ids)
