"""Samples to fine-tune a policy on, written by the scripted expert of the deeper almanac in a folded context.

    python -m research.deep_traces --config deep_traces [worlds=40 ...]

A sample is a window: what the policy read after a fold, and the turns that it wrote until the next one. With
`context.fold_at` null a sample is a whole attempt. The worlds are others than the one that is trained in.
"""

import asyncio
import sys
from collections.abc import Sequence

from research.sample_command import SampleSettings, run_sample_command
from rubricem_agent.data.chatml import ChatSample, samples_of, write_samples
from rubricem_agent.policy.base import TINY_SYSTEM
from rubricem_agent.prompting import AgentPrompt, prompt_from_text
from rubricem_env.domain.base import PositiveCount
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.testing.episodes import play_turns
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.world.deep import DEEP_ENTITIES, deep_almanac
from rubricem_env.world.expert import AlmanacTeacher
from rubricem_env.world.offline import query_of
from rubricem_env.world.questions import Question

LIMITS = EpisodeLimits(max_calls=100, max_turns=110, max_tokens=100_000)


class DeepTraceConfig(SampleSettings):
    """What the expert writes."""

    worlds: PositiveCount
    first_world: PositiveCount = 1
    """World 0 is the one that is trained in."""
    entities: PositiveCount = DEEP_ENTITIES
    """Of a domain, and as many questions."""
    context: ContextLimits


async def play(toolbox: LocalToolbox, question: Question, context: ContextLimits, prompt: AgentPrompt) -> Trajectory:
    """One episode of the expert, to its end."""
    opening = prompt.opening(query_of(question))
    episode = Episode(query_of(question), prompt=opening.user, system=opening.system, limits=LIMITS, context=context)
    expert = AlmanacTeacher(question, max_searches=LIMITS.max_calls - 1)
    return (await play_turns(episode, toolbox, expert.turn)).trajectory


async def write_world(config: DeepTraceConfig, number: int, prompt: AgentPrompt) -> list[ChatSample]:
    """The samples of the training questions of a world: held-out names never occur."""
    world = deep_almanac(number, entities_per_domain=config.entities, questions_per_domain=config.entities)
    toolbox = offline_toolbox(Corpus(world.documents))
    samples: list[ChatSample] = []
    for question in world.questions_of("train"):
        opening = prompt.opening(query_of(question))
        trajectory = await play(toolbox, question, config.context, prompt)
        name = f"world-{number}-{question.id}"
        samples += samples_of(trajectory, sample_id=name, system=opening.system, user=opening.user)
    return samples


def make_deep_samples(config: DeepTraceConfig) -> list[ChatSample]:
    """Write samples.jsonl."""
    prompt = AgentPrompt(TINY_SYSTEM, prompt_from_text("tiny", TINY_SYSTEM).hash)
    numbers = range(config.first_world, config.first_world + config.worlds)
    samples = [sample for number in numbers for sample in asyncio.run(write_world(config, number, prompt))]
    write_samples(config.out / "samples.jsonl", samples)
    return samples


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the samples. A user error gives exit code 2 and one sentence on stderr."""
    return run_sample_command("deep_traces", arguments, DeepTraceConfig, make_deep_samples)


if __name__ == "__main__":
    sys.exit(main())
