"""The options of `rubricem eval run`, as one value."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.terminal import JsonOption, QuietOption
from rubricem_agent.config.evals import EvalConfig, Style
from rubricem_agent.evals.answering.reuse import Reuse
from rubricem_agent.evals.modes import Mode
from rubricem_agent.evals.run.runner import Limits, Stage
from rubricem_agent.evals.subset import SubsetName
from rubricem_env.domain.errors import ConfigError

_SHARD = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True)
class RunOptions:
    """What a user may say about a run. Field names are option names."""

    benchmark: Annotated[str, typer.Argument(help="Its name; `rubricem eval list` shows them.")]
    data: Annotated[str, typer.Option(help="The official file, or hf:OWNER/NAME/FILE@REVISION.")] = ""
    criteria: Annotated[Path | None, typer.Option(help="drb: the criteria file.")] = None
    references: Annotated[Path | None, typer.Option(help="drb: the reference articles.")] = None
    any_version: Annotated[bool, typer.Option("--any-version", help="Let other hashes and row counts through.")] = False
    fact: Annotated[bool, typer.Option("--fact", help="drb: check citations as well.")] = False
    mode: Annotated[Mode, typer.Option(help="Whose protocol.")] = Mode.OFFICIAL
    policy: Annotated[
        str,
        typer.Option(help="scripted, openai:MODEL@URL, gemini:MODEL, local:PATH, file:ANSWERS.jsonl, or expert."),
    ] = "scripted"
    judge: Annotated[list[str] | None, typer.Option(help="gemini:MODEL or openai:MODEL@URL; repeat for agreement.")] = (
        None
    )
    limit: Annotated[int | None, typer.Option(min=1, help="So many examples, by the mode's published rule.")] = None
    subset: Annotated[SubsetName, typer.Option(help="ablation: the same 100 in every run.")] = SubsetName.MODE
    ids: Annotated[Path | None, typer.Option(help="A file with one example id a line.")] = None
    epochs: Annotated[int, typer.Option(min=1, help="Repeats of every example; the variance is split.")] = 1
    stage: Annotated[Stage, typer.Option(help="Only answers, only verdicts, or all.")] = Stage.ALL
    style: Annotated[Style, typer.Option(help="The scaffold, or plain think and act.")] = Style.SCAFFOLD
    reuse: Annotated[Reuse, typer.Option(help="Reflections put before the question.")] = Reuse.NONE
    bank: Annotated[Path | None, typer.Option(help="The bank that --reuse cross retrieves from.")] = None
    attempts: Annotated[int, typer.Option(min=1, help="Episodes in a row; the last answer counts.")] = 1
    tools: Annotated[Path | None, typer.Option(help="Settings of the search tools; without, offline.")] = None
    seen: Annotated[
        list[Path] | None, typer.Option(help="Training data or a bank that the examples must not be in; repeatable.")
    ] = None
    drop_seen: Annotated[bool, typer.Option("--drop-seen", help="Leave such examples out.")] = False
    out: Annotated[Path | None, typer.Option(help="The run's folder; the same one resumes.")] = None
    answers_from: Annotated[
        Path | None, typer.Option(help="Judge the answers of that run, its examples and epochs, and answer nothing.")
    ] = None
    budget: Annotated[
        float | None, typer.Option(min=0.01, help="Dollars of models with a known price, over all resumes; then stop.")
    ] = None
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes at once.")] = 16
    judge_concurrency: Annotated[int, typer.Option(min=1, help="Judge calls at once.")] = 64
    search_concurrency: Annotated[int, typer.Option(min=1, help="Searches at once.")] = 16
    seed: Annotated[int, typer.Option(min=0, help="Of the policy's draws and the bootstrap.")] = 0
    shard: Annotated[str, typer.Option(help="Run part I of N: I/N.")] = "1/1"
    ray: Annotated[int, typer.Option(min=0, help="Run so many parts over a Ray cluster.")] = 0
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count calls and money, ask nothing.")] = False
    as_json: JsonOption = False
    quiet: QuietOption = False

    def config(self) -> EvalConfig:
        """The settings that the options mean.

        Raises:
            ConfigError: --shard is not I/N.
        """
        part = _SHARD.fullmatch(self.shard)
        if part is None:
            raise ConfigError(f"--shard is {self.shard!r}; write the part and their number, such as 2/8.")
        shared = {
            name: getattr(self, name) for name in EvalConfig.model_fields.keys() & self.__dataclass_fields__.keys()
        }
        limits = Limits(policy=self.concurrency, judge=self.judge_concurrency, search=self.search_concurrency)
        return EvalConfig(
            **{
                **shared,
                "judges": tuple(self.judge or ()),
                "seen": tuple(self.seen or ()),
                "limits": limits,
                "shard": (int(part[1]), int(part[2])),
            }
        )
