"""The `rubricem` section of a veRL config, and what follows from it: questions and their stream.

Questions per step (`data.train_batch_size`), group size (`actor_rollout_ref.rollout.n`), temperature, learning rate,
KL, steps and checkpoints keep veRL's own keys, so that each has one key.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from rubricem_agent.config.bank import BankConfig
from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.sections import read_mapping
from rubricem_agent.config.tools import ToolsConfig
from rubricem_agent.data.question_files import read_training_set
from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.learn.monitor import WatchSettings
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.env.research_env import query_of
from rubricem_env.judge.audit import AuditSettings
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.judge import JudgeKnobs
from rubricem_env.world.questions import Question

from ..settings import RecipeSettings

SECTION = "rubricem"
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class TimeLimits(Frozen):
    """Seconds that the parts of a step may take before the run stops with an error instead of hanging."""

    sync: Seconds = 600.0
    """Weights from the trainer to the sampling engines."""
    update: Seconds = 7_200.0
    """One pass over a batch by the workers: log-probabilities, or an optimiser step."""
    sample: Seconds = 7_200.0
    """A step's rollouts, judged."""
    lesson: Seconds = 60.0
    """Wait for the question's own lesson at a repeat; then the question has none (choice C13)."""


class OutageSettings(Frozen):
    """A judge that answers nothing pauses the run: one group probes it, the others wait, and nothing is lost."""

    patience: Annotated[float, Field(ge=0)] = 3_600.0
    """Seconds of one outage, after which the run stops; 0 stops it at once."""
    probe: Seconds = 60.0
    """Seconds between two probes, each of which judges one whole group."""


class AlmanacSettings(Frozen):
    """Train in the shipped almanac: its questions, its pages, its judge."""

    knobs: JudgeKnobs = JudgeKnobs()
    """How the judge deviates from the truth."""


class HeldOutJudgeSettings(AuditSettings):
    """A judge that the policy is not trained on, which scores a fixed sample of the rollouts."""

    every: Count = 10
    """Steps between audits."""
    judge: JudgeConfig | None = None
    """The held-out judge; None only in the almanac, where it is the almanac's without its knobs."""


_LOCAL_CREDIT = {
    "igpo": "needs the probability of the gold answer after every turn, which veRL's engines are not asked for",
    "gdpo": "scales by the spread over all rollouts of a step, and on veRL each group is credited when it is judged",
}


class VerlSettings(RecipeSettings):
    """A run of RubricEM on veRL, beside veRL's own keys; the defaults are the paper's."""

    ahead: Annotated[int, Field(ge=0)] | None = None
    """Steps whose questions are sampled before their turn; None is `num_warmup_batches` of veRL's mode."""
    max_age: Count | None = None
    """Updates between the sampling of a group and its training; older groups are dropped. None: twice `ahead`, plus 2."""
    seed: int = 0
    questions: Path | None = None
    """JSONL, one `Query` a line, as `rubricem data prepare` writes it; not read in the almanac."""
    almanac: AlmanacSettings | None = None
    """The almanac instead of your own questions and judge."""
    system: str = ""
    """The system prompt; "" gives the agent's whole prompt."""
    max_turn_tokens: Count = 8_192
    limits: EpisodeLimits = EpisodeLimits()
    judge: JudgeConfig = JudgeConfig()
    """In the almanac only `judge.settings` is used."""
    held_out_judge: HeldOutJudgeSettings | None = None
    """Score a sample with a second judge, and warn when the two judges part; None does not. It changes nothing in training."""
    bank: BankConfig = BankConfig()
    tools: ToolsConfig = ToolsConfig()
    time_limits: TimeLimits = TimeLimits()
    outage: OutageSettings = OutageSettings()
    watch: WatchSettings = WatchSettings()
    """When the run counts as lost and stops."""
    evicted_limit: Annotated[float, Field(ge=0)] = 0.2
    """Groups of a step that veRL may evict and replace, as a share of the step; more of them stop the run."""
    record: bool = True
    """Keep rollouts, judgements, rubrics and bank step by step for `rubricem view`; changes nothing in training."""

    @model_validator(mode="after")
    def _is_complete(self) -> "VerlSettings":
        if self.credit in _LOCAL_CREDIT:
            raise ValueError(
                f"credit {self.credit} {_LOCAL_CREDIT[self.credit]}; train it with trainers/local_ssgrpo.py, or choose "
                "another method"
            )
        if self.held_out_judge is not None and self.held_out_judge.judge is None and self.almanac is None:
            raise ValueError(
                "held_out_judge names no judge; add held_out_judge: {judge: {judge: gemini:MODEL}}, other than the run's"
            )
        if self.reflection.kl_coefficient is not None:
            raise ValueError("reflection.kl_coefficient is read by the local trainer only: veRL's workers have one KL")
        if self.questions is None and self.almanac is None:
            raise ValueError(
                "there are no questions to train on; name a file in rubricem.questions, or train in the almanac with "
                "rubricem.almanac={}"
            )
        return self


def read_section(section: object) -> VerlSettings:
    """The settings of a `rubricem` section, as plain mappings and lists.

    Raises:
        ConfigError: it is no mapping, a key is unknown at any depth, or a value is out of its range.
    """
    if not isinstance(section, Mapping):
        raise ConfigError(f"the config has no section `{SECTION}`; start from configs/verl_almanac_cpu.yaml.")
    return read_mapping(section, VerlSettings, where=f"the section {SECTION}")


def share_of(tools: ToolsConfig, workers: int) -> ToolsConfig:
    """Budget and mounted servers divided among `workers` processes; at least 1 of each.

    The search engines' rates stay whole: all workers take their turns from one limiter, the judge service's or the tool
    server's.
    """
    mounted = [one.model_copy(update={"concurrency": max(1, one.concurrency // workers)}) for one in tools.mounted]
    return tools.model_copy(update={"budget": tools.budget.share(workers), "mounted": tuple(mounted)})


AGENT_LOOP = "rubricem"
"""The name of our agent loop in veRL."""
Row = dict[str, npt.NDArray[np.object_]]
"""A batch of one prompt, as veRL's own `collate_fn` makes it: a column of objects for each field."""


class CurriculumStream:
    """The windowed curriculum as veRL's stream of training data: endless, one prompt at a time, in the order of the steps.

    It replaces veRL's data loader, which veRL asks for prompts one by one and whose state it saves with the weights. A
    new iteration continues where the last one stopped.
    """

    def __init__(self, curriculum: Curriculum, queries: Mapping[str, Query]) -> None:
        self._curriculum = curriculum
        self._queries = queries
        self._waiting: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        if not self._waiting:
            batch = next(self._curriculum)
            self._waiting = [
                {
                    "raw_prompt": [{"role": "user", "content": self._queries[key].question}],
                    "index": index,
                    "agent_name": AGENT_LOOP,
                    "data_source": AGENT_LOOP,
                    "query": self._queries[key].model_dump_json(),
                    "encounter": batch.encounter,
                    "lesson_step": batch.step,
                }
                for index, key in enumerate(batch.keys)
            ]
        row: Row = {}
        for name, value in self._waiting.pop(0).items():
            row[name] = np.empty(1, dtype=object)
            row[name][0] = value
        return row

    def state_dict(self) -> dict[str, Any]:
        """The curriculum's state, and the prompts of its step that are not requested yet; as JSON."""
        return {"curriculum": self._curriculum.state_dict(), "waiting": list(self._waiting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken; raises UsageError as the curriculum does."""
        self._curriculum.load_state_dict(state["curriculum"])
        self._waiting = list(state["waiting"])


ASYNC = "rubricem_async"
SYNC = "rubricem_sync"
SEPARATE = "rubricem_separate"
RAY = "ray"
"""The transport of `cpu/transport.py`, by its name in veRL's registry."""
ESTIMATOR = "rubricem"
"""Our advantage estimator in veRL's registry; `grpo`, which older configs name, is read as it."""


def load_training_questions(settings: VerlSettings) -> tuple[dict[str, Query], dict[str, Question]]:
    """The queries to train on, and the truth about them, by query key; the truth is empty outside the almanac.

    Raises:
        FileFormatError: the file cannot be read, a line is not a question with rubrics, or a question occurs twice.
    """
    if settings.almanac is not None:
        questions = [one for one in load_questions(shipped_questions_path()) if one.split == "train"]
        truth = {query_of(question).key: question for question in questions}
        return {key: query_of(question) for key, question in truth.items()}, truth
    assert settings.questions is not None, "the settings refuse a run without questions"
    return {query.key: query for query in read_training_set(settings.questions)}, {}
