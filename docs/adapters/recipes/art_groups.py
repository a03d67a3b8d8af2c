"""ART: one TrajectoryGroup for each stage, for a trajectory has one advantage; scalar within a stage.

ART normalises the rewards of a group, so a stage's returns become the advantages of section 3.3. A message is trained
on where it is a `Choice`: in a stage's group these are the turns that the stage has text in. A turn of two stages,
such as review and answer, is trained on in both groups, each with its own advantage.
"""

from collections.abc import Sequence
from typing import NamedTuple

import art
from openai.types.chat.chat_completion import Choice

from rubricem_agent.learn import assign_credit, group_scores
from rubricem_env.adapters import turns_of_stage
from rubricem_env.domain import STAGES, Judgement, Origin, Stage, Trajectory


class Attempt(NamedTuple):
    """One attempt at a question, played through ART's endpoint."""

    trajectory: Trajectory
    choices: Sequence[Choice]
    """The model's answers as the client returned them, one for each turn."""


def stage_groups(attempts: Sequence[Attempt], judgements: Sequence[Judgement]) -> list[art.TrajectoryGroup]:
    """A group for each stage that any attempt has text in."""
    scores, valid, scored = group_scores(judgements)
    returns = assign_credit(scores, valid=valid, scored=scored).returns
    groups = []
    for stage in STAGES:
        members = [
            art.Trajectory(
                messages_and_choices=messages_of(attempt, stage),
                reward=float(returns[index, stage.position]),
                metadata={"stage": stage.value},
            )
            for index, attempt in enumerate(attempts)
            if valid[index] and scored[index, stage.position] and turns_of_stage(attempt.trajectory, stage)
        ]
        if members:
            groups.append(art.TrajectoryGroup(members))
    return groups


def messages_of(attempt: Attempt, stage: Stage) -> art.MessagesAndChoices:
    """The conversation, with the turns of the stage as choices and all others as plain messages."""
    own = turns_of_stage(attempt.trajectory, stage)
    messages: art.MessagesAndChoices = []
    turn = 0
    for segment in attempt.trajectory.segments:
        if segment.origin is not Origin.POLICY:
            messages.append({"role": "user", "content": segment.text})
            continue
        if turn in own:
            messages.append(attempt.choices[turn])
        else:
            messages.append({"role": "assistant", "content": segment.text})
        turn += 1
    return messages
