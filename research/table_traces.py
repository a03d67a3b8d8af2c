"""Samples to fine-tune a policy on, written by the scripted analyst of the world of tables.

    python -m research.table_traces --config table_traces [worlds=40 ...]

Its faults are strategy alone, so that RL can improve on them. Its worlds are others than the one that is trained in.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from research.sample_command import SampleSettings, run_sample_command
from rubricem_agent.data.chatml import ChatSample, sample_of, write_samples
from rubricem_agent.policy.base import TINY_SYSTEM
from rubricem_agent.prompting import AgentPrompt, agent_prompt, stage_prompts
from rubricem_env.domain.base import PositiveCount
from rubricem_env.domain.stage_set import read_stage_set
from rubricem_env.domain.trajectory import ToolCall, ToolResult
from rubricem_env.env.episode import Episode
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.testing.episodes import play_turns
from rubricem_env.tools.base import FunctionTool, LocalToolbox
from rubricem_env.tools.tables.run_sql import RunSql
from rubricem_env.world.tables.analyst import TableAnalyst
from rubricem_env.world.tables.analyst_faults import AnalystFaults, AnalystSlips, draw_analyst_slips
from rubricem_env.world.tables.attempts import table_query
from rubricem_env.world.tables.questions import TableQuestion
from rubricem_env.world.tables.table_world import TableWorld

STAGES = read_stage_set("data_analysis")


class TableTraceConfig(SampleSettings):
    """What the analyst writes."""

    seed: int = 0
    worlds: PositiveCount
    first_world: PositiveCount = 1
    """World 0 is the one that is trained in."""
    rivers: PositiveCount
    faults: AnalystFaults


async def play(toolbox: LocalToolbox, question: TableQuestion, slips: AnalystSlips) -> ParsedTrajectory:
    """One episode of the analyst, to its end."""
    episode = Episode(table_query(question), scaffold=STAGES.scaffold)
    return (await play_turns(episode, toolbox, TableAnalyst(question, slips).turn)).read()


async def write_world(config: TableTraceConfig, number: int, prompt: AgentPrompt) -> list[ChatSample]:
    """A sample for each question of a world."""
    world = TableWorld.from_seed(number, rivers=config.rivers)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "tables.sqlite"
        world.write_sqlite(place)
        tool = RunSql.open(place, processes=1)

        async def answer(call: ToolCall) -> ToolResult:
            return (await tool.answer(call))[0]

        toolbox = LocalToolbox(FunctionTool(tool.spec, answer))
        samples = []
        for question in world.questions:
            slips = draw_analyst_slips(question, config.faults, seed=config.seed, world=str(number))
            parsed = await play(toolbox, question, slips)
            opening = prompt.opening(table_query(question))
            name = f"world-{number}-{question.id}"
            samples.append(sample_of(parsed.trajectory, sample_id=name, system=opening.system, user=opening.user))
        await tool.aclose()
    return samples


def make_table_samples(config: TableTraceConfig) -> list[ChatSample]:
    """Write samples.jsonl."""
    prompt = agent_prompt(
        STAGES.scaffold.tools, system=TINY_SYSTEM, prompts=stage_prompts(STAGES), scaffold=STAGES.scaffold
    )
    numbers = range(config.first_world, config.first_world + config.worlds)
    samples = [sample for number in numbers for sample in asyncio.run(write_world(config, number, prompt))]
    write_samples(config.out / "samples.jsonl", samples)
    return samples


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the samples. A user error gives exit code 2 and one sentence on stderr."""
    return run_sample_command("table_traces", arguments, TableTraceConfig, make_table_samples)


if __name__ == "__main__":
    sys.exit(main())
