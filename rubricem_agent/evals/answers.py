"""Answers the examples of a run: an agent as it is evaluated, with a policy in episodes."""

import hashlib
from collections.abc import Awaitable, Callable

from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.references import References, no_references
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.rollout.run import Attempt, RolloutContext, run_episode
from rubricem_env.domain.trajectory import AnswerFormat, Query
from rubricem_env.llm.usage import Usage
from rubricem_records.evaluations.logs import AnswerRecord, CaseKey
from rubricem_records.rollouts.rollouts import Rollout

Answerer = Callable[..., Awaitable[AnswerRecord]]
"""An agent: answerer(example, *, answer_format, guidance="", epoch=0) attempts one example.

Its record has a trajectory, an answer without one, or a failure of the world. `guidance` describes the answer's form
and follows the question. Many examples are answered at once on one event loop. The agent raises SpendLimitReached where
the budget is used up; any other exception fails this example alone.
"""


async def answer_in_episodes(
    example: Example,
    *,
    answer_format: AnswerFormat,
    context: RolloutContext,
    prompt: AgentPrompt,
    guidance: str = "",
    epoch: int = 0,
    references: References = no_references,
    attempts: int = 1,
    seed: int = 0,
) -> AnswerRecord:
    """Answer with a policy in episodes, by `run_episode`: the agent as it is evaluated.

    Of several attempts the last one's answer counts, and the usage of all; a failure ends them.
    """
    query = Query(question=example.prompt_text, answer_format=answer_format)
    key = CaseKey(example.id, epoch)
    done: list[Rollout] = []
    for number in range(attempts):
        opening = prompt.opening(query, references=await references(query.question, done))
        if guidance:
            opening = opening._replace(user=f"{opening.user}\n{guidance}")
        attempt_seed = seed_of(seed, key, attempt=number)
        done.append(await run_episode(Attempt(query, opening, prompt.hash, attempt_seed), context))
        if done[-1].failure:
            break
    usage = sum((rollout.usage for rollout in done), Usage())
    last = done[-1]
    return AnswerRecord(
        id=key.id,
        epoch=key.epoch,
        trajectory=last.trajectory,
        failure=last.failure,
        usage=usage,
        model=context.policy.name,
    )


def seed_of(seed: int, key: CaseKey, *, attempt: int) -> int:
    """The same for the same example, epoch and attempt, in every order of completion; 31 bits, as servers take."""
    name = f"{seed}/{key.id}/{key.epoch}/{attempt}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % 2**31
