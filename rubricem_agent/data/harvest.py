"""From finished traces to training samples: reject, normalise, frame as a conversation, drop what is too long."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rubricem_agent.data.chatml import ChatSample, sample_of
from rubricem_agent.data.generation import Trace
from rubricem_agent.data.normalize import normalize
from rubricem_agent.data.reject import Rejection, find_rejections, over_length
from rubricem_agent.data.rejection_report import RejectionReport, count_rejections
from rubricem_env.domain.query import Query
from rubricem_env.env.episode import estimate_tokens


class Frame(NamedTuple):
    """What stands around a trace in its sample."""

    system: str
    """The student's prompt, not the teacher's."""
    user: Callable[[Query], str]
    """The question with its format instruction."""
    teacher: str = ""
    prompt_hash: str = ""


class Filter(NamedTuple):
    """What is rejected."""

    max_unknown_citations: int = 0
    flat: bool = False
    max_tokens: int = 16_384
    count_tokens: Callable[[ChatSample], int] | None = None
    """None counts four bytes a token: pass the student's tokenizer to be exact."""


class Rejected(NamedTuple):
    """A trace that is not trained on."""

    trace: Trace
    reasons: tuple[Rejection, ...]


class Harvest(NamedTuple):
    """What came of all traces, in their order."""

    samples: list[ChatSample]
    rejected: list[Rejected]
    report: RejectionReport


def harvest(traces: Sequence[Trace], frame: Frame, *, keep: Filter) -> Harvest:
    """Every trace is either a sample or rejected with its reasons."""
    samples: list[ChatSample] = []
    rejected: list[Rejected] = []
    for trace in traces:
        reasons = find_rejections(trace, max_unknown_citations=keep.max_unknown_citations, flat=keep.flat)
        if not reasons:
            sample = _frame(trace, frame)
            num_tokens = (keep.count_tokens or estimate_sample_tokens)(sample)
            if num_tokens <= keep.max_tokens:
                samples.append(sample)
                continue
            reasons = (over_length(num_tokens, keep.max_tokens),)
        rejected.append(Rejected(trace, reasons))
    judged = [each.reasons for each in rejected] + [()] * len(samples)
    return Harvest(samples, rejected, count_rejections(judged))


def estimate_sample_tokens(sample: ChatSample) -> int:
    """About how many tokens a sample has."""
    return sum(estimate_tokens(message.content) for message in sample.messages)


def _frame(trace: Trace, frame: Frame) -> ChatSample:
    trajectory = normalize(trace.trajectory)
    user = frame.user(trace.task.query)
    sample = sample_of(trajectory, sample_id=trace.task.id, system=frame.system, user=user)
    return sample.model_copy(update={"teacher": frame.teacher, "prompt_hash": frame.prompt_hash})
