"""What passes over the desk: rollouts in, marks out, and the work that is left for the next step.

Samples of the local trainer's form as rows of veRL's training queue: Phase A trains on them.

A finished episode as a row of the training batch: prompt, response, mask, stages, and what the desk made of it.

From the marks of a step's rollouts to an advantage for every token, by `learn/credit` and nothing else.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from rubricem_agent.learn.credit import Bools, CreditMode, Floats, assign_credit, spread_to_tokens
from rubricem_agent.learn.curriculum import Encounter
from rubricem_agent.learn.metrics import count_repeats
from rubricem_agent.learn.samples import Sample
from rubricem_agent.policy.tokens import PolicyTokenizer
from rubricem_agent.reflection.reflector import ReflectionOutcome
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.tokens import NO_STAGE, RolloutTokens
from rubricem_env.domain.errors import JudgeError
from rubricem_env.domain.trajectory import Origin, Query
from rubricem_env.scaffold.grammar import ValidationMode
from rubricem_env.scaffold.reading import read_trajectory
from trainers.verl_backend.engine_policy import Versions

Four = tuple[float, float, float, float]
"""One number a stage: plan, research, review, answer."""


class Meeting(NamedTuple):
    """A question as the curriculum meets it."""

    query: Query
    step: int
    """Of the curriculum, from 1."""
    encounter: Encounter


class Handed(NamedTuple):
    """One rollout of a group."""

    group: str
    """The group's name: every meeting has its own."""
    place: int
    """Of the rollout in the group, from 0."""
    meeting: Meeting
    rollout: Rollout


class Marks(NamedTuple):
    """What a rollout is worth, once its whole group has been judged."""

    scores: Four
    """As credit takes them: 0 where a stage is missing or nobody could judge it."""
    judged: tuple[float | None, float | None, float | None, float | None]
    """As the judge gave them; None where it gave none."""
    is_valid: bool
    """False where the judge or the world failed: left out of the group's statistics and of the loss."""
    failure: str = ""
    """Why it is not valid, in one sentence."""
    true: Four | None = None
    """By the truth, in the almanac: written down to audit the judge, read by nothing that trains."""


class RolloutCredit(NamedTuple):
    """What the trainer has made of a rollout, to be written down."""

    group: str
    place: int
    """Of the rollout in the group, from 0."""
    returns: Four
    advantages: Four
    trained: bool
    """Whether the step's update uses it."""


class TrainableReflections(NamedTuple):
    """Reflections that a step may train on."""

    outcomes: tuple[ReflectionOutcome, ...]
    failures: tuple[str, ...]
    staleness: tuple[int, ...]
    """Steps from launch to use, of each outcome."""
    pending: int
    """Still being written."""
    bank: int
    """Items that may be retrieved."""
    fault: str = ""
    """Why the desk can go on no longer, such as a ceiling that was reached; "" while it can."""


class DeskCalls(Protocol):
    """The desk as an episode sees it, in this process or through Ray."""

    async def references(self, meeting: Meeting) -> str:
        """The block of lessons to put before the question; "" without any."""
        ...

    async def hand_in(self, handed: Handed) -> Marks:
        """Wait until the group is whole and judged; what this rollout is worth."""
        ...


class PhaseRow(NamedTuple):
    """One sample: what veRL reads of it, and its advantages, which are put in after the rows have been padded."""

    fields: dict[str, Any]
    tag: dict[str, Any]
    advantages: npt.NDArray[np.float32]
    """Of the response's tokens."""


def phase_row(sample: Sample, *, uid: str, step: int) -> PhaseRow:
    """A sample as veRL's agent loop would have handed it in: response from the policy's first token on."""
    stages = np.asarray(sample.stage_ids)
    ids = torch.as_tensor(np.asarray(sample.token_ids), dtype=torch.int64)
    split = int(np.argmax(stages != NO_STAGE))
    mask = torch.as_tensor(stages[split:] != NO_STAGE).to(torch.int64)
    logprobs = torch.as_tensor(np.asarray(sample.rollout_logprobs)[split:], dtype=torch.float32)
    fields = {
        "uid": uid,
        "prompts": ids[:split],
        "responses": ids[split:],
        "response_mask": mask,
        "loss_mask": mask,
        "input_ids": ids,
        "position_ids": torch.arange(len(ids), dtype=torch.int64),
        "rollout_log_probs": logprobs,
        "rm_scores": torch.zeros(len(mask), dtype=torch.float32),
        "multi_modal_inputs": {},
        "extra_fields": {},
        "num_turns": 1,
    }
    tag = {
        "status": "success",
        "prompt_len": split,
        "response_len": len(mask),
        "seq_len": len(ids),
        "global_steps": step,
        "min_global_steps": sample.policy_version,
        "max_global_steps": sample.policy_version,
    }
    return PhaseRow(fields, tag, np.asarray(sample.advantages, dtype=np.float32)[split:])


OURS = "rubricem"
"""Our key among veRL's extra fields."""


class RolloutHabits(NamedTuple):
    """How one rollout was written, whatever it is worth."""

    answer_words: int
    calls: int
    repeated_calls: int
    is_valid: bool
    """Whether strict mode accepts it."""


class Credentials:
    """What credit is worked out from; travels with the row, and is small but for the stage ids.

    A class of its own, because veRL dumps its rows through pydantic, which would make a named tuple a plain one.
    """

    def __init__(
        self, marks: Marks, stage_ids: npt.NDArray[np.int8], *, key: str, encounter: str, habits: RolloutHabits
    ) -> None:
        self.marks = marks
        self.stage_ids = stage_ids
        """Of the response's tokens: 0 to 3 where the policy wrote, -1 elsewhere."""
        self.key = key
        self.encounter = encounter
        self.habits = habits


class EpisodeRow(NamedTuple):
    """The fields of veRL's `AgentLoopOutput`."""

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float]
    num_turns: int
    extra_fields: dict[str, Any]


def episode_row(
    rollout: Rollout, marks: Marks, *, tokenizer: PolicyTokenizer, versions: Versions, encounter: str
) -> EpisodeRow:
    """The row of a rollout. One that never drew a token has an end token, masked, for its prompt and its response."""
    drawn = _until_last_drawn(rollout.tokens) if rollout.tokens is not None else _NOTHING
    end = min(tokenizer.end_ids, default=0)
    prompt, response = drawn.prompt or [end], drawn.response or [end]
    response_stages = np.array(drawn.stages or [NO_STAGE], dtype=np.int8)
    key = rollout.trajectory.query_key
    return EpisodeRow(
        prompt,
        response,
        response_mask=(response_stages != NO_STAGE).astype(int).tolist(),
        response_logprobs=drawn.logprobs or [0.0],
        num_turns=sum(segment.origin is Origin.POLICY for segment in rollout.trajectory.segments),
        extra_fields={
            OURS: Credentials(marks, response_stages, key=key, encounter=encounter, habits=_habits(rollout)),
            "min_global_steps": versions.first,
            "max_global_steps": versions.last,
            "reward_extra_info": {},
        },
    )


class _Drawn(NamedTuple):
    """An episode's tokens as far as they are trained on: stages and log-probabilities are the response's."""

    prompt: list[int]
    response: list[int]
    stages: list[int]
    logprobs: list[float]


_NOTHING = _Drawn([], [], [], [])


def _until_last_drawn(tokens: RolloutTokens) -> _Drawn:
    """Without what a tool answered after the policy's last token.

    Nothing is trained on there, and it is all that an engine's limit does not bound: a row that is longer than what
    the workers take at once would stop the run.
    """
    drawn = [place for place, stage in enumerate(tokens.stage_ids) if stage != NO_STAGE]
    if not drawn:
        return _NOTHING
    split, end = tokens.prompt_length, drawn[-1] + 1
    return _Drawn(
        list(tokens.ids[:split]),
        list(tokens.ids[split:end]),
        list(tokens.stage_ids[split:end]),
        list(tokens.logprobs[split:end]),
    )


def _habits(rollout: Rollout) -> RolloutHabits:
    reading = read_trajectory(rollout.trajectory)
    calls = [turn.call for turn in reading.turns if turn.call is not None]
    words = len((reading.answer or "").split())
    return RolloutHabits(words, len(calls), count_repeats(calls), not reading.rejects(ValidationMode.STRICT))


class CreditedRows(NamedTuple):
    """Rows as they were given; those that are not trainable teach nothing and cost nothing (choice D6)."""

    returns: Floats
    """(rows, stages)."""
    advantages: Floats
    """(rows, stages)."""
    trainable: Bools
    skipped: tuple[str, ...]
    """One sentence for each group that had too few valid rollouts."""


def credit_rows(
    rows: Sequence[Credentials], groups: Sequence[str], *, mode: CreditMode, matrix: npt.ArrayLike
) -> CreditedRows:
    """The stage advantages of a step; `groups` names each row's."""
    _, members = np.unique(np.asarray(groups), return_inverse=True)
    credit = assign_credit(
        np.array([row.marks.scores for row in rows]).reshape(len(rows), -1),
        groups=members,
        valid=np.array([row.marks.is_valid for row in rows], dtype=bool),
        mode=mode,
        matrix=matrix,
    )
    return CreditedRows(credit.returns, credit.advantages, credit.trainable, tuple(map(str, credit.skipped)))


def token_advantages(advantages: npt.ArrayLike, stage_ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    """One row's advantages spread over its response, (tokens,)."""
    spread: npt.NDArray[np.float32] = spread_to_tokens(np.asarray(advantages)[None], stage_ids[None])[0]
    return spread


def refuse_outage(rows: Sequence[Credentials], limit: float) -> None:
    """Stop where too many of a step's rollouts were lost to the judge or the world (choice B7).

    Raises:
        JudgeError: the message counts them and quotes the first reason.
    """
    lost = [row.marks.failure for row in rows if not row.marks.is_valid]
    if len(lost) > limit * len(rows):
        raise JudgeError(
            f"{len(lost)} of the step's {len(rows)} rollouts were lost; more than {limit:.0%} stop the run, because a "
            f"policy must not learn from what is left. First failure: {lost[0]}. Set right what failed and start "
            "again: the run goes on from its last checkpoint."
        )
