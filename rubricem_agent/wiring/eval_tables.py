"""Plans one of the paper's tables: one policy, four benchmarks, one budget, and a folder for each run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rubricem_agent.evals.paper_tables import paper_rows
from rubricem_agent.evals.suite import PAPER, has_official_prompts
from rubricem_agent.wiring.command_option import CommandOption
from rubricem_agent.wiring.eval_config import EvalConfig, EvalSettings
from rubricem_agent.wiring.eval_plan import PlannedEvaluation, plan_run
from rubricem_agent.wiring.hub_files import HUB
from rubricem_agent.wiring.stored_runs import read_logs
from rubricem_env.domain.errors import ConfigError
from rubricem_records.evaluations.manifest import MANIFEST_FILE
from rubricem_records.evaluations.rules import EvaluationMode


def parse_files(texts: Sequence[str] | None) -> dict[str, str]:
    """The file of each benchmark, from BENCHMARK=FILE; raises ConfigError on another text or benchmark."""
    files = {}
    for text in texts or ():
        name, _, file = text.partition("=")
        if name not in PAPER or not file:
            raise ConfigError(f"--data is {text!r}; write BENCHMARK=FILE with one of {', '.join(PAPER)}.")
        files[name] = file
    return files


class TableConfig(EvalSettings):
    """The evaluations of one of the paper's tables."""

    mode: Annotated[EvaluationMode, Field(description="Whose protocol.")] = "paper"
    data: Annotated[
        Mapping[str, str],
        CommandOption(
            "data",
            "BENCHMARK=FILE; repeatable. Files on the hub are fetched without it.",
            list[str] | None,
            parse=parse_files,
        ),
    ] = Field(default_factory=dict)
    """The file of each benchmark that is not on the hub."""
    out: Annotated[Path | None, Field(description="The folder of the runs; the same one resumes.")] = None

    def evaluations(self, table: int) -> list[EvalConfig]:
        """The runs of a table, in its order.

        Raises:
            ConfigError: a benchmark's file is neither named nor on the hub.
        """
        rows = list(paper_rows(table))
        files = {row.benchmark: row.file for row in rows if row.file.startswith(HUB)} | dict(self.data)
        missing = [f"{row.benchmark} ({row.file})" for row in rows if row.benchmark not in files]
        if missing:
            raise ConfigError(
                f"table {table} needs the files of {'; '.join(missing)}. Give each with --data BENCHMARK=FILE."
            )
        strangers = sorted(self.data.keys() - {row.benchmark for row in rows})
        if strangers:
            raise ConfigError(f"--data names {', '.join(strangers)}, which is not in table {table}. Leave it out.")
        folder = self.out or Path("runs") / "eval" / f"table{table}"
        shared = {name: getattr(self, name) for name in EvalSettings.model_fields}
        return [
            EvalConfig(
                **{
                    **shared,
                    "benchmark": row.benchmark,
                    "data": files[row.benchmark],
                    "criteria": self.criteria if row.benchmark == "drb" else None,
                    "references": self.references if row.benchmark == "drb" else None,
                    "judges": self._judges_of(row.benchmark),
                    "prompts": self.prompts if has_official_prompts(row.benchmark, self.mode) else "",
                    "out": folder / row.benchmark,
                }
            )
            for row in rows
        ]

    def _judges_of(self, benchmark: str) -> tuple[str, ...]:
        """The judges that are named for a benchmark, as BENCHMARK=JUDGE, else those for all."""
        own = [judge.partition("=")[2] for judge in self.judges if judge.partition("=")[0] == benchmark]
        return tuple(own) or tuple(judge for judge in self.judges if judge.partition("=")[0] not in PAPER)


def plan_table(config: TableConfig, table: int) -> list[PlannedEvaluation]:
    """The runs of a table before the first call; what one of them refuses ends all of them here.

    Raises:
        UsageError: as `plan_run`.
    """
    return [plan_run(evaluation) for evaluation in config.evaluations(table)]


def within_budget(planned: PlannedEvaluation, others: Sequence[PlannedEvaluation]) -> PlannedEvaluation | None:
    """The run with what the other runs of its table have left of the budget; None where nothing is left."""
    budget = planned.config.budget
    if budget is None:
        return planned
    left = budget - sum(spent_in(other.config.folder) for other in others if other is not planned)
    return planned._replace(config=planned.config.model_copy(update={"budget": left})) if left > 0 else None


def spent_in(folder: Path) -> float:
    """The known dollars that a run's answers and verdicts have cost so far."""
    if not (folder / MANIFEST_FILE).exists():
        return 0.0
    answers, verdicts = read_logs(folder)
    return sum(record.dollars or 0.0 for log in (answers.records, verdicts.records) for record in log)
