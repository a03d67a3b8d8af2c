"""Filters finished teacher traces, and turns those that pass into training samples.

Rejection reasons are the paper's four (section B.2) or ours; the report counts them apart. A normalised trace has
<think> for the teacher's scratchpad, canonical tags and canonical tool calls. The folder of a run holds the samples,
the rejected traces with their reasons, the report and the usage.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rubricem_agent.data.base import Trace
from rubricem_agent.data.chatml import ChatSample, samples_of, write_samples
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import read_text, validating
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import Origin, Query, Segment, ToolCall, Trajectory
from rubricem_env.llm.usage import Meter
from rubricem_env.scaffold.grammar import CALL_TOOL, THINK
from rubricem_env.scaffold.lexer import find_tags
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.scaffold.violation import Code, Violation
from rubricem_env.tools.render import estimate_tokens
from rubricem_env.tools.repair import repair_call
from rubricem_env.tools.spec import GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC, ToolSpec
from rubricem_records.files.atomic_files import MAKE_ROOM, write_atomic, writing

QUOTE = '"'
TOOL_SPECS = (GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC)


def normalize(trajectory: Trajectory, specs: Sequence[ToolSpec] = TOOL_SPECS) -> Trajectory:
    """The same trace in canonical form; a canonical one is unchanged. What tools have shown is never touched.

    Only for traces whose thoughts are balanced: see `unbalanced_thoughts`.
    """
    scaffold = trajectory.scaffold
    segments = list(trajectory.segments)
    for index, segment in enumerate(segments):
        if segment.origin is Origin.POLICY:
            turn = parse_turn(segment.text, 1, scaffold)
            block = turn.last(CALL_TOOL)
            text = _rename_tags(segment.text, scaffold)
            if turn.call is not None and block is not None:
                text = _rename_tags(segment.text[: block.start], scaffold) + call_text(turn.call, specs)
            segments[index] = segment.model_copy(update={"text": text, "cut": ""})
    return trajectory.model_copy(update={"segments": tuple(segments)})


def unbalanced_thoughts(trajectory: Trajectory) -> Iterator[Segment]:
    """The turns in which a thought does not close before the next opens, or closes without having opened."""
    for segment in trajectory.segments:
        if segment.origin is Origin.POLICY:
            tags = find_tags(segment.text, trajectory.scaffold)
            closing = [token.closing for token in tags if token.name == THINK and not token.empty]
            if closing != [False, True] * (len(closing) // 2):
                yield segment


def call_text(call: ToolCall, specs: Sequence[ToolSpec]) -> str:
    """The call in its canonical form; one of an unknown tool keeps its name."""
    repaired = repair_call(call, specs)
    made = repaired if isinstance(repaired, ToolCall) else call
    spelt = {parameter.key: parameter.name for spec in specs if spec.name == made.name for parameter in spec.parameters}
    attributes = "".join(f' {spelt.get(name, name)}="{value.replace(QUOTE, "")}"' for name, value in made.parameters)
    return f'<{CALL_TOOL} name="{made.name}"{attributes}>{made.query}</{CALL_TOOL}>'


def _rename_tags(text: str, scaffold: Scaffold) -> str:
    """Every tag by its canonical name in lower case; inside a thought only the thought's own tags count."""
    pieces: list[str] = []
    done = 0
    in_thought = False
    for token in find_tags(text, scaffold):
        if token.name == THINK:
            in_thought = not token.closing and not token.empty
        elif in_thought:
            continue
        pieces += [text[done : token.start], f"<{'/' if token.closing else ''}{token.name}{token.attributes}>"]
        done = token.end
    return "".join(pieces) + text[done:]


_NO_CALL = "no_tool_call"

PAPER_REASONS = MappingProxyType(
    {
        Code.MISSING_ANSWER: "missing_answer",
        Code.NO_ACTION: _NO_CALL,
        Code.MISSING_TOOL_NAME: _NO_CALL,
        Code.EMPTY_QUERY: _NO_CALL,
        Code.UNCLOSED_TAG: "missing_structure",
        Code.UNEXPECTED_CLOSE: "missing_structure",
        Code.NESTED_TAG: "missing_structure",
        Code.MISPLACED_TAG: "missing_structure",
        Code.MISSING_PLAN: "missing_structure",
        Code.MISSING_PLAN_SECTION: "missing_structure",
        Code.MISSING_STATE_EVALUATION: "missing_structure",
        Code.MISSING_BLOCK: "missing_structure",
        Code.MISSING_SECTION: "missing_structure",
        Code.CONSECUTIVE_TOOL_ERRORS: "consecutive_tool_errors",
    }
)
"""The paper's four reasons, by the violation that each stands for. Any other violation is a reason of ours."""


class Rejection(NamedTuple):
    """One reason against one trace."""

    reason: str
    is_paper: bool
    message: str
    """For a person: what, where, and the rule."""


_SCAFFOLD_ALONE = frozenset(
    {
        Code.MISSING_PLAN,
        Code.MISSING_PLAN_SECTION,
        Code.MISSING_STATE_EVALUATION,
        Code.MISSING_REVIEW,
        Code.MISSING_REVIEW_SECTION,
    }
)


def find_rejections(trace: Trace, *, max_unknown_citations: int = 0, flat: bool = False) -> tuple[Rejection, ...]:
    """All that speaks against a trace as the teacher wrote it; empty for one that is accepted.

    `max_unknown_citations` is how many ids an answer may cite that no tool has shown. A `flat` trace, think and act
    alone, owes no plan, no evaluation and no review.
    """
    if trace.failure:
        return (_own("teacher_failed", f"the teacher wrote no further turn: {trace.failure}"),)
    parsed = parse_trajectory(trace.trajectory)
    invents = len(parsed.citations.unknown) > max_unknown_citations
    counted = (
        violation
        for violation in parsed.rejections
        if (invents or violation.code is not Code.UNKNOWN_CITATION) and not (flat and violation.code in _SCAFFOLD_ALONE)
    )
    unbalanced = (segment.text[:40].replace("\n", " ") for segment in unbalanced_thoughts(trace.trajectory))
    sentence = "the turn that begins with {!r} has a thought that is opened or closed alone."
    thoughts = (_own("unbalanced_thought", sentence.format(opening)) for opening in unbalanced)
    return (*thoughts, *(_of_violation(violation, parsed.scaffold) for violation in counted))


def over_length(num_tokens: int, limit: int) -> Rejection:
    """The reason against a sample that is too long for training."""
    return _own("over_length", f"the sample has {num_tokens:,} tokens; training takes up to {limit:,}.")


def _of_violation(found: Violation, scaffold: Scaffold) -> Rejection:
    if found.code is Code.MISSING_PLAN_SECTION and "without <research_plan>" in found.message:
        return _own("missing_research_plan", found.message)
    paper = PAPER_REASONS.get(found.code)
    if paper == _NO_CALL and not scaffold.calls_tools:
        paper = None
    return Rejection(paper or found.code.value, paper is not None, found.message)


def _own(reason: str, message: str) -> Rejection:
    return Rejection(reason, False, message)


class ReasonCount(Frozen):
    """One reason over all traces."""

    reason: Text
    is_paper: bool
    named: int
    """Traces against which it speaks, perhaps with others."""
    alone: int
    """Traces against which nothing else speaks."""
    example: Text
    """What was said of the first of them."""


class RejectionReport(Frozen):
    """The outcome of filtering. A trace with several reasons is one rejected trace."""

    traces: int
    accepted: int
    by_paper: int
    """Rejected traces that one of the paper's four reasons alone would reject."""
    reasons: tuple[ReasonCount, ...]
    """The paper's first, then ours; most frequent first."""
    failed: int = 0
    """Questions without a trace because the teacher's server failed; the next run asks them again."""
    failure: Text = ""
    """What the server said for the first of them."""

    @property
    def rejected(self) -> int:
        return self.traces - self.accepted


def count_rejections(judged: Sequence[Sequence[Rejection]]) -> RejectionReport:
    """The report over the reasons found against each trace; an accepted trace has none."""
    named: Counter[tuple[str, bool]] = Counter()
    alone: Counter[tuple[str, bool]] = Counter()
    examples: dict[tuple[str, bool], str] = {}
    for rejections in judged:
        kinds = list(dict.fromkeys((rejection.reason, rejection.is_paper) for rejection in rejections))
        named.update(kinds)
        alone.update(kinds if len(kinds) == 1 else ())
        for rejection in rejections:
            examples.setdefault((rejection.reason, rejection.is_paper), rejection.message)
    order = sorted(named, key=lambda kind: (not kind[1], -named[kind], kind[0]))
    return RejectionReport(
        traces=len(judged),
        accepted=sum(not rejections for rejections in judged),
        by_paper=sum(any(rejection.is_paper for rejection in rejections) for rejections in judged),
        reasons=tuple(
            ReasonCount(reason=k[0], is_paper=k[1], named=named[k], alone=alone[k], example=examples[k]) for k in order
        ),
    )


class Harvest(NamedTuple):
    """What came of all traces, in their order."""

    samples: list[ChatSample]
    rejected: list[tuple[Trace, tuple[Rejection, ...]]]
    """Traces that are not trained on, with the reasons."""
    report: RejectionReport


def harvest(
    traces: Sequence[Trace],
    *,
    system: str,
    user: Callable[[Query], str],
    teacher: str = "",
    prompt_hash: str = "",
    max_unknown_citations: int = 0,
    flat: bool = False,
    max_tokens: int = 16_384,
    count_tokens: Callable[[ChatSample], int] | None = None,
    specs: Sequence[ToolSpec] = TOOL_SPECS,
) -> Harvest:
    """Every trace is either samples, one for each window, or rejected with its reasons.

    One whose server failed is neither.

    Args:
        traces: finished traces.
        system: the student's prompt, not the teacher's.
        user: the question with its format instruction.
        teacher: its name, stored with each sample.
        prompt_hash: of the teacher's prompts.
        max_unknown_citations: as in `find_rejections`.
        flat: as in `find_rejections`.
        max_tokens: longer samples are rejected.
        count_tokens: None estimates by script: pass the student's tokenizer to be exact.
        specs: of the tools whose calls are brought into their canonical form.
    """
    samples: list[ChatSample] = []
    rejected: list[tuple[Trace, tuple[Rejection, ...]]] = []
    accepted = 0
    failures = [trace.failure for trace in traces if trace.is_open]
    for trace in traces:
        if trace.is_open:
            continue
        reasons = find_rejections(trace, max_unknown_citations=max_unknown_citations, flat=flat)
        if not reasons:
            query = trace.task.query
            whole = normalize(trace.trajectory, specs)
            made = samples_of(whole, sample_id=trace.task.id, system=system, user=user(query))
            num_tokens = max(map(count_tokens or _estimated, made))
            if num_tokens <= max_tokens:
                named = {"teacher": teacher, "prompt_hash": prompt_hash}
                samples += [sample.model_copy(update=named) for sample in made]
                accepted += 1
                continue
            reasons = (over_length(num_tokens, max_tokens),)
        rejected.append((trace, reasons))
    judged = [reasons for _, reasons in rejected] + [()] * accepted
    report = count_rejections(judged).model_copy(update={"failed": len(failures), "failure": next(iter(failures), "")})
    return Harvest(samples, rejected, report)


def _estimated(sample: ChatSample) -> int:
    return sum(estimate_tokens(message.content) for message in sample.messages)


SAMPLES_FILE = "samples.jsonl"
REJECTED_FILE = "rejected.jsonl"
REPORT_FILE = "report.json"
USAGE_FILE = "usage.json"


def write_harvest(folder: Path, harvested: Harvest) -> None:
    """Write the samples, the rejected traces with their reasons, and the report; what was there is replaced."""
    rejected = (
        {
            "id": trace.task.id,
            "reasons": [reason._asdict() for reason in reasons],
            "trajectory": trace.trajectory.model_dump(mode="json"),
        }
        for trace, reasons in harvested.rejected
    )
    lines = "".join(json.dumps(fields, ensure_ascii=False) + "\n" for fields in rejected)
    with writing(folder, MAKE_ROOM):
        write_samples(folder / SAMPLES_FILE, harvested.samples)
        (folder / REJECTED_FILE).write_text(lines, encoding="utf-8")
        (folder / REPORT_FILE).write_text(harvested.report.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_report(folder: Path) -> RejectionReport:
    """The report of a finished run.

    Raises:
        FileFormatError: there is none, or it is malformed.
    """
    path = folder / REPORT_FILE
    with validating(f"{path} is no report"):
        return RejectionReport.model_validate_json(read_text(path, "a finished `data teach`"))


def keep_usage(folder: Path, meter: Meter) -> None:
    """Write what was spent, so that a limit holds over restarts."""
    with writing(folder, MAKE_ROOM):
        write_atomic(folder / USAGE_FILE, json.dumps(meter.state_dict()))


def recall_usage(folder: Path, meter: Meter) -> None:
    """Take over what an earlier start of this run has spent.

    Raises:
        FileFormatError: the file does not say it.
    """
    path = folder / USAGE_FILE
    if not path.exists():
        return
    try:
        meter.load_state_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise FileFormatError(
            f"{path} does not say what was spent, so a limit cannot hold. Restore it; or remove it, and what the run "
            "has spent so far counts no longer."
        ) from cause
