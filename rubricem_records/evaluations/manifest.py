"""The manifest of an evaluation: everything that its numbers depend on."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import read_text, refuse_other_than_file, validating
from rubricem_env.domain.stage_set import DEEP_RESEARCH
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.llm.chat import Effort
from rubricem_records.evaluations.rules import EvaluationMode, Rules
from rubricem_records.rollouts.sampling import Sampling

MANIFEST_VERSION = 1

_BACKENDS = ("gemini:", "openai:", "responses:", "anthropic:", "vllm:", "local:")
"""How the name of a policy or a judge begins where a model follows."""

MANIFEST_FILE = "run.json"
ANSWERS_FILE = "answers.jsonl"
VERDICTS_FILE = "verdicts.jsonl"
SCORES_FILE = "scores.json"


class Inputs(Frozen):
    """The files that were read. Paths may change; hashes may not."""

    path: Text
    sha256: Text
    rows: int
    criteria: Text = ""
    references: Text = ""
    beside_sha256: Text = ""
    """The hash of criteria and reference articles together: their weights move numbers and stand in no prompt."""
    any_version: bool = False
    with_fact: bool = False
    ids: tuple[Text, ...]
    """The examples that are run, in the order of the subset."""
    subset: Text
    """The rule by which they were chosen, in words."""
    left_out: tuple[Text, ...] = ()
    """Examples that were dropped because they are in training data or in the bank."""


class Agent(Frozen):
    """Who answered, and how."""

    policy: Text
    policy_sha256: Text = ""
    """The hash of a local model's files; empty for a model on a server."""
    style: Text = "scaffold"
    scaffold: Annotated[Text, Field(exclude_if=DEEP_RESEARCH.name.__eq__)] = DEEP_RESEARCH.name
    """The stages that it was asked for, by name or folder. A manifest leaves those of deep research out."""
    scaffold_sha256: Annotated[Text, Field(exclude_if="".__eq__)] = ""
    """The hash of a folder of the user's own."""
    prompts_sha256: Text = ""
    """The hash of the prompts of a folder of the user's own; empty for ours."""
    tools: Text = ""
    """What `--tools` names."""
    search: Text = ""
    """What was searched, such as `web (gemini, semantic_scholar)`; empty where the answers were given.

    Web benchmarks drift with it and with the date.
    """
    search_sha256: Text = ""
    """The hash of the settings and the corpus of the search; empty for the shipped one."""
    reuse: Text = "none"
    bank: Text = ""
    bank_sha256: Text = ""
    """The hash of the lessons that may be retrieved; empty without a bank."""
    attempts: Annotated[int, Field(ge=1)] = 1
    guidance: Text = ""
    """The line on the answer's form that stands after every question; empty for none, as in the official codes."""
    effort: Effort = ""
    """How much the policy was asked to think; empty for its provider's own."""
    sampling: Sampling | None = None
    """How the policy drew its text; none where no model wrote."""
    limits: Annotated[EpisodeLimits, Field(exclude_if=EpisodeLimits().__eq__)] = EpisodeLimits()
    """Of its episodes. A manifest leaves them out where they are the paper's."""
    context: Annotated[ContextLimits, Field(exclude_if=ContextLimits().__eq__)] = ContextLimits()
    """How much of an episode the policy read. A manifest leaves it out where that was everything."""


class EvaluationManifest(Frozen):
    """One run."""

    version: int = MANIFEST_VERSION
    benchmark: Text
    title: Text
    """The benchmark's name as reports print it."""
    mode: EvaluationMode
    rules: Rules
    judges: tuple[Text, ...]
    """Each judge is BACKEND:MODEL[@URL], without the URL of the default service. Empty where no model judges."""
    judge_effort: Effort = ""
    prompt_hash: Text
    prompts: Text = ""
    """The folder or package of the official judge prompts; empty where the judge is asked with our own."""
    inputs: Inputs
    agent: Agent
    epochs: Annotated[int, Field(ge=1)] = 1
    seed: int = 0
    created: Text = ""
    code: Text = ""
    """Version of this package."""
    warning: Text = ""
    """What makes the numbers of the run say nothing, found when it was scored: the policy answered no example."""

    @property
    def is_substituted(self) -> bool:
        """Whether another judge than the mode's own is used, or another effort: such numbers are not official."""
        is_other = any(judge_model(judge) != self.rules.judge for judge in self.judges)
        return bool(self.rules.judge) and (is_other or self.judge_effort != self.rules.effort)

    @property
    def has_own_prompts(self) -> bool:
        """Whether a judge is asked in our words and not in those of the benchmark: such numbers are not official."""
        return bool(self.prompt_hash) and not self.prompts

    @property
    def label(self) -> str:
        """The mode as it is printed beside every number.

        With a star for a substitute judge, whose prompts, what was searched, and how long an episode might be: each
        moves the number.
        """
        parts = [f"{self.mode}*" if self.is_substituted else self.mode]
        parts += ["own prompts"] if self.has_own_prompts else []
        parts += [self.agent.search.partition(" (")[0]] if self.agent.search else []
        parts += [f"{self.agent.limits.max_calls} calls"] if self.agent.limits != EpisodeLimits() else []
        parts += ["folded context"] if self.agent.context.fold_at is not None else []
        return ", ".join(parts)


def judge_model(judge: str) -> str:
    """The model in a judge's name, such as `gpt-4.1` in `openai:gpt-4.1@https://host`; another name unchanged."""
    return judge.partition(":")[2].partition("@")[0] if judge.startswith(_BACKENDS) else judge


def read_manifest(folder: Path) -> EvaluationManifest:
    """The manifest of a run. Raises FileFormatError where the folder is no run, or one of a newer release."""
    path = folder / MANIFEST_FILE
    refuse_other_than_file(path, "manifest of a run")
    if not path.exists():
        raise FileFormatError(f"{folder} is no run: {path} cannot be read. Give the --out folder of a run.")
    with validating(f"{path} is no manifest of a run"):
        # Not strict: JSON has lists for tuples and strings for enums.
        manifest = EvaluationManifest.model_validate_json(read_text(path, "the manifest of a run"), strict=False)
    if manifest.version > MANIFEST_VERSION:
        raise FileFormatError(f"{path} has the version {manifest.version}; this release reads {MANIFEST_VERSION}.")
    return manifest
