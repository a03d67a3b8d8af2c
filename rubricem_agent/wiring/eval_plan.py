"""Plans evaluations: reads the files, chooses the examples, and describes the run; reads and rescores stored runs.

Files are here or on the hub. Questions of training can be kept out, and hashes of all inputs say whether a run may resume.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic.main import IncEx

from rubricem_agent import config as configs
from rubricem_agent.config import GIVEN, EvalConfig
from rubricem_agent.evals.answers import GivenAnswers
from rubricem_agent.evals.base import DataPaths
from rubricem_agent.evals.grading import Loaded
from rubricem_agent.evals.resumed_run import has_lines, refuse_difference
from rubricem_agent.evals.runner import rehearse
from rubricem_agent.evals.scoring import EvaluationLogs, score_run
from rubricem_agent.evals.seen_examples import find_seen, seen_keys, without_seen
from rubricem_agent.evals.subsets import choose, refuse_incomplete
from rubricem_agent.evals.suite import find_benchmark, load_benchmark, rules_for
from rubricem_agent.policy.base import model_folder
from rubricem_agent.wiring.memory import SNAPSHOT_SUFFIX, open_existing_bank
from rubricem_agent.wiring.models import requires_extra
from rubricem_agent.wiring.tools import open_index
from rubricem_env import __version__
from rubricem_env.domain.errors import ConfigError, FileFormatError, UsageError
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.llm.usage import SHUT_DOWN, Price, Usage, listed_with, price_of
from rubricem_records.atomic_files import write_atomic, writing
from rubricem_records.evaluation_logs import AnswerRecord, VerdictRecord
from rubricem_records.evaluation_manifest import (
    ANSWERS_FILE,
    SCORES_FILE,
    VERDICTS_FILE,
    Agent,
    EvaluationManifest,
    Inputs,
    judge_model,
    read_manifest,
)
from rubricem_records.evaluation_rules import Rules
from rubricem_records.evaluation_scores import ModelCost, Scores
from rubricem_records.file_hash import sha256
from rubricem_records.journal import NO_ROOM, Journal
from rubricem_records.sampling import Sampling

HUB = "hf:"
_READABLE = (".jsonl", ".json", ".parquet")
_PART = re.compile(r"[\w.-]+")


def parse_hub_file(data: str, *, needs_file: bool = True) -> tuple[str, str, str]:
    """Repository, file and revision of `hf:OWNER/NAME/FILE[@REVISION]`; raises ConfigError on a missing part."""
    name, _, revision = data.removeprefix(HUB).partition("@")
    owner, _, rest = name.partition("/")
    repository, _, file = rest.partition("/")
    if not (_PART.fullmatch(owner) and _PART.fullmatch(repository) and (file or not needs_file)):
        form = "hf:OWNER/NAME/FILE[@REVISION]" if needs_file else "hf:OWNER/NAME[/FILE][@REVISION]"
        raise ConfigError(f"the data set {data!r} lacks a part, or has a forbidden character; one is named {form}.")
    return f"{owner}/{repository}", file, revision


def fetch_hub_file(data: str, *, needs_file: bool = True) -> Path:
    """A file of a data set on the hub, downloaded unless it is in the cache. Its content is not checked.

    Raises:
        ConfigError: the name is malformed, or names none or several of the repository's files.
        MissingExtraError: huggingface_hub is not installed.
        FileFormatError: the file cannot be fetched.
    """
    repository, file, revision = parse_hub_file(data, needs_file=needs_file)
    with requires_extra("local", "a data set from the hub"):
        from httpx import HTTPError
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.errors import HFValidationError
    at = revision or None
    try:
        file = file or choose_file(HfApi().list_repo_files(repository, repo_type="dataset", revision=at), data)
        return Path(hf_hub_download(repository, file, repo_type="dataset", revision=at))
    except HFValidationError as cause:
        raise ConfigError(f"{data!r} is not a valid name on the hub: {str(cause).splitlines()[0]}") from cause
    except (HTTPError, OSError) as cause:
        raise FileFormatError(
            f"{data} cannot be fetched ({type(cause).__name__}). Without a network, fetch the file elsewhere and give "
            "its path."
        ) from cause


def fetched(given: str) -> Path:
    """The path of a file that is here, or is fetched from the hub."""
    return fetch_hub_file(given) if given.startswith(HUB) else Path(given).expanduser()


def choose_file(files: Iterable[str], source: str) -> str:
    """The only data file of a repository, or the only one for training; raises ConfigError without such a file."""
    readable = sorted(file for file in files if file.endswith(_READABLE))
    training = [file for file in readable if "train" in file.casefold()]
    for candidates in (readable, training):
        if len(candidates) == 1:
            return candidates[0]
    held = f"holds {', '.join(readable)}" if readable else f"holds no file that ends in {', '.join(_READABLE)}"
    raise ConfigError(f"{source} {held}; name one as hf:OWNER/NAME/FILE[@REVISION].")


def read_seen(path: Path) -> Collection[str]:
    """Keys of the questions in a file of JSON lines, in the folder of a rubric bank, or in the bank.npz of a checkpoint."""
    if path.is_dir() or path.suffix == SNAPSHOT_SUFFIX:
        return frozenset(item.key for item in open_existing_bank(path, embeds=False).items())
    return seen_keys(path)


def model_names(config: configs.EvalConfig, rules: Rules) -> tuple[str, tuple[str, ...]]:
    """The policy and the judges of the chosen stages, by the names that prices are listed under.

    The policy is empty where answering is free: a script, a file, a model in this process, or no answering.

    Raises:
        ConfigError: there is no such policy or judge.
    """
    policy, judges = "", tuple(map(judge_model, judge_names(config, rules)))
    if config.policy != configs.EXPERT and not config.policy.startswith(configs.GIVEN):
        spec = configs.parse_policy(config.policy)
        policy = "" if spec.backend in (configs.SCRIPTED, configs.LOCAL) else spec.model
    return "" if config.stage == "verdicts" else policy, () if config.stage == "answers" else judges


def prices_of(config: configs.EvalConfig, *models: str) -> Mapping[str, Price]:
    """The list prices with those that the settings give; raises ConfigError where a budget could not hold a model."""
    given = dict(config.prices)
    rest = given.pop("", None)
    prices = listed_with(given)
    unpriced = [model for model in dict.fromkeys(models) if model and price_of(model, prices) is None]
    if rest is not None:
        return listed_with({**dict.fromkeys(unpriced, rest), **given})
    if config.budget is not None and unpriced:
        raise ConfigError(
            f"--budget is {config.budget:g} dollars, and the price of {', '.join(unpriced)} is unknown. Give what a "
            f"million tokens cost, read and written, as in --price {unpriced[0]}=2,12, or 0,0 for a server of your own."
        )
    return prices


def judge_names(config: configs.EvalConfig, rules: Rules) -> tuple[str, ...]:
    """BACKEND:MODEL[@URL] of each, without the URL of the default service: another server may hold another model.

    Raises:
        ConfigError: a judge is no model, or is named twice.
    """
    given = [configs.parse_judge(judge) for judge in config.judges]
    if not rules.judge:
        return ()
    names: tuple[str, ...] = ()
    for spec in given or map(configs.parse_judge, configs.default_judges(rules)):
        # A login in the address is no part of who judges, and is not written down.
        address = ",".join(
            url.rstrip("/").replace(urlsplit(url).netloc, urlsplit(url).netloc.rpartition("@")[2], 1)
            for url in spec.urls
        )
        name = f"{spec.backend}:{spec.model}" if spec.model else spec.backend
        names += (name if address in ("", configs.OPENAI_URL) else f"{name}@{address}",)
    if configs.RULES in names:
        raise ConfigError(
            "benchmarks are judged by models. Use --judge gemini:MODEL, openai:MODEL@URL, responses:MODEL or anthropic:MODEL."
        )
    if len(set(names)) < len(names):
        raise ConfigError(f"a judge is named twice in {', '.join(names)}; agreement is between different judges.")
    return names


_WITHOUT_EFFECT: Mapping[str, IncEx | bool] = MappingProxyType(
    {
        **dict.fromkeys(("corpus", "replay", "record", "cache", "budget", "timeout", "total"), True),
        "google_search": {"rates": True, "fee": True, "then": {"__all__": {"rates", "fee"}}},
        "snippet_search": {"rates": True, "fee": True, "then": {"__all__": {"rates", "fee"}}},
        "remote": {"concurrency", "timeout"},
        "mounted": {"__all__": {"environment", "token_variable", "timeout", "concurrency", "repeats_lost_calls"}},
    }
)
"""Settings that change no result: a run may be resumed with a larger budget or another rate."""


def beside_sha256(*paths: Path | None) -> str:
    """Hash of the files beside the data file, such as criteria; empty without any."""
    contents = [path.read_bytes() for path in paths if path is not None]
    return hashlib.sha256(b"".join(contents)).hexdigest() if contents else ""


def policy_sha256(policy: str) -> str:
    """Hash of the model that `local:PATH` names: its weights, tokenizer and settings; empty for any other policy."""
    folder = model_folder(Path(policy.removeprefix(f"{configs.LOCAL}:")).expanduser())
    if not policy.startswith(f"{configs.LOCAL}:") or not folder.is_dir():
        return ""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".json", ".jinja", ".txt"))
    return hashlib.sha256("".join(f"{path.name} {sha256(path)}\n" for path in files).encode()).hexdigest()


def search_sha256(settings: Path | None) -> str:
    """Hash of what decides the search results: settings, corpus and record; empty for the shipped corpus.

    Raises:
        ConfigError: the settings, or a file that they name, cannot be read.
    """
    if settings is None:
        return ""
    config = configs.load_tools_config(settings)
    digest = hashlib.sha256(config.model_dump_json(exclude=dict(_WITHOUT_EFFECT)).encode())
    for key, path in (("corpus", config.corpus), ("replay", config.replay)):
        if path is not None:
            try:
                content = open_index(path).manifest.sha256.encode() if path.is_dir() else path.read_bytes()
                digest.update(f"\0{key}\0".encode() + content)
            except OSError as cause:
                where = f"the {key} of {settings} cannot be read: {path}"
                raise ConfigError(f"{where}: {cause.strerror}. Correct its path there.") from cause
    return digest.hexdigest()


def bank_sha256(folder: Path | None) -> str:
    """Hash of the lessons that may be retrieved; empty without a bank."""
    if folder is None:
        return ""
    lessons = (item for item in open_existing_bank(folder, embeds=False).items() if item.is_retrievable)
    texts = sorted(f"{item.id}\0{item.reflection.model_dump_json()}" for item in lessons)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def rescore_run(folder: Path, data: str = "") -> Scores:
    """The scores of a run from its logs and its data file alone; `data` is the file's current path.

    Raises:
        FileFormatError: the folder is no run, or a log is broken.
        UsageError: the data file is not the one of the run.
    """
    manifest = read_manifest(folder)
    loaded = reload_benchmark(folder, manifest, data=data)
    scores = score_run(loaded, manifest, logs=read_logs(folder))
    write_scores(folder, scores)
    return scores


def reload_benchmark(folder: Path, manifest: EvaluationManifest, *, data: str = "") -> Loaded:
    """The benchmark of a run; raises UsageError where its files or the judge prompts have changed since."""
    inputs = manifest.inputs
    paths = DataPaths(
        Path(data or inputs.path),
        Path(inputs.criteria) if inputs.criteria else None,
        Path(inputs.references) if inputs.references else None,
    )
    loaded = load_benchmark(
        manifest.benchmark,
        paths,
        rules=manifest.rules,
        any_version=True,
        with_fact=inputs.with_fact,
        prompts=manifest.prompts,
    )
    if loaded.sha256 != inputs.sha256:
        raise UsageError(
            f"{loaded.path} has the sha256 {loaded.sha256[:12]}; {folder} was made on "
            f"{inputs.sha256[:12]}. Give the file of that run with --data."
        )
    if beside_sha256(paths.criteria, paths.references) != inputs.beside_sha256:
        raise UsageError(
            f"the criteria or reference articles of {folder} have changed since; its scores can only be computed again "
            f"with the same ones at {inputs.criteria} and {inputs.references}."
        )
    if loaded.grader.prompt_hash != manifest.prompt_hash:
        raise UsageError(
            f"{folder} was judged with prompts {manifest.prompt_hash}; this release has {loaded.grader.prompt_hash}. "
            f"Use release {manifest.code} to compute its scores again."
        )
    return loaded


def read_logs(folder: Path) -> EvaluationLogs:
    """Both logs of a run, as far as they are written."""
    return EvaluationLogs(
        Journal.read(folder / ANSWERS_FILE, AnswerRecord), Journal.read(folder / VERDICTS_FILE, VerdictRecord)
    )


def write_scores(folder: Path, scores: Scores) -> None:
    """Write the scores atomically."""
    path = folder / SCORES_FILE
    with writing(path, NO_ROOM):
        write_atomic(path, scores.model_dump_json(indent=1))


def read_parts(folder: Path, wanted: EvaluationManifest) -> tuple[EvaluationLogs, ...]:
    """The logs of the parts of a split run that have begun; raises UsageError where a part is of another run."""
    begun = [part for part in sorted(folder.glob("*-of-*")) if has_lines(part)]
    for part in begun:
        refuse_difference(part, read_manifest(part), wanted=wanted)
    return tuple(map(read_logs, begun))


def search_costs(settings: Path | None, calls: int) -> list[ModelCost]:
    """What so many searches cost: each of the dearer tool, as if no result were in the cache; empty where none is paid."""
    tools = configs.load_tools_config(settings) if settings else configs.ToolsConfig()
    if not tools.asks_engines:
        return []
    dearer = max((tools.google_search, tools.snippet_search), key=lambda search: search.dollars)
    asked, dollars = Usage(calls=calls), calls * dearer.dollars
    return [ModelCost(stage="searches, at most", model=dearer.engine, usage=asked, dollars=dollars, is_priced=True)]


class PlannedEvaluation(NamedTuple):
    """A run before its first call."""

    config: EvalConfig
    loaded: Loaded
    manifest: EvaluationManifest
    judge_models: tuple[str, ...]
    prices: Mapping[str, Price]
    """The list, and what the settings say in its place."""
    given: GivenAnswers | None = None
    """The answers, where they come from a file."""

    def estimate(self) -> list[ModelCost]:
        """Calls and money, for a dry run."""
        is_paid = self.config.stage != "verdicts" and self.config.asks_a_model
        policy = judge_model(self.config.policy) if is_paid else None
        ids, epochs = self.manifest.inputs.ids, self.config.epochs
        costs = rehearse(self.loaded, ids, epochs=epochs, policy=policy, judges=self.judge_models, prices=self.prices)
        # Every answer makes all its calls.
        searched = search_costs(self.config.tools, EpisodeLimits().max_calls * len(ids) * epochs) if policy else []
        return [*costs[:1], *searched, *costs[1:]]

    def notes(self) -> list[str]:
        """Warnings about settings without effect, as sentences."""
        notes = []
        if self.config.prompts and not self.loaded.grader.prompts:
            notes.append(
                f"{self.manifest.benchmark} is scored without a judge in mode {self.manifest.mode}: --prompts does nothing."
            )
        judge = self.loaded.rules.judge
        day, successor = SHUT_DOWN.get(judge, ("", ""))
        if day and not self.config.judges and self.config.stage != "answers":
            notes.append(
                f"the judge {judge} is shut down from {day} on ({successor} is its successor): name another with --judge."
            )
        wanted = self.loaded.benchmark.drtulu_ids
        if wanted and self.config.mode == "drtulu" and not (self.config.ids or self.config.answers_from):
            notes.append(
                f"DR Tulu runs a fixed set of examples of {self.manifest.benchmark}: --ids {wanted} chooses it."
            )
        if self.config.judges and not self.loaded.rules.judge:
            notes.append(
                f"{self.manifest.benchmark} is scored without a judge in mode {self.manifest.mode}: "
                f"--judge {', '.join(self.config.judges)} is not asked."
            )
        if self.config.sampling != Sampling() and not self.config.asks_a_model:
            notes.append(
                f"{self.config.policy} draws no tokens: --temperature, --top-p and --max-turn-tokens do nothing."
            )
        return notes


def plan_run(config: EvalConfig) -> PlannedEvaluation:
    """Read the files, choose the examples, and describe the run.

    Raises:
        UsageError: an input is wrong or missing, or two settings contradict each other.
    """
    config.check()
    find_benchmark(config.benchmark)
    rules = rules_for(config.benchmark, config.mode)
    source = read_manifest(config.answers_from) if config.answers_from is not None else None
    if source is not None:
        config = _judging_only(config, source)
    policy, judges = model_names(config, rules)
    prices = prices_of(config, policy, *judges)
    paths = DataPaths(fetched(config.data) if config.data else None, config.criteria, config.references)
    loaded = load_benchmark(
        config.benchmark,
        paths,
        rules=rules,
        any_version=config.any_version,
        with_fact=config.fact,
        prompts=config.prompts,
    )
    manifest = EvaluationManifest(
        benchmark=config.benchmark,
        title=loaded.benchmark.title,
        mode=config.mode,
        rules=rules,
        judges=judge_names(config, rules),
        prompt_hash=loaded.grader.prompt_hash,
        prompts=config.prompts if loaded.grader.official else "",
        inputs=_inputs(config, loaded, source),
        agent=source.agent if source is not None else _agent(config),
        epochs=config.epochs,
        seed=config.seed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        code=__version__,
    )
    given = None
    if config.policy.startswith(GIVEN) and config.stage != "verdicts":
        given = GivenAnswers.read(Path(config.policy.removeprefix(GIVEN)))
        given.refuse_unknown([example.id for example in loaded.examples], ids=loaded.benchmark.ids)
    return PlannedEvaluation(config, loaded, manifest, judges, prices, given)


def _judging_only(config: EvalConfig, source: EvaluationManifest) -> EvalConfig:
    """The settings of a run that judges the answers of `source`, with that run's policy and epochs.

    Raises:
        ConfigError: they name another benchmark, or describe the answers wrongly.
    """
    if source.benchmark != config.benchmark:
        raise ConfigError(
            f"{config.answers_from} is a run of {source.benchmark}; its answers cannot be judged as those of "
            f"{config.benchmark}. Name a run of {config.benchmark} with --answers-from."
        )
    agent, default = source.agent, EvalConfig(benchmark=config.benchmark)
    # Option, default, value given here, value of the run. The tools may differ for FACT.
    options: list[tuple[str, object, object, object]] = [
        ("policy", default.policy, config.policy, agent.policy),
        ("style", default.style, config.style, agent.style),
        ("reuse", default.reuse, config.reuse, agent.reuse),
        ("bank", "", str(config.bank or ""), agent.bank),
        ("attempts", default.attempts, config.attempts, agent.attempts),
        *(
            (name.replace("_", "-"), default_value, getattr(config.sampling, name), theirs)
            for name, default_value in default.sampling
            if (theirs := getattr(agent.sampling, name, default_value)) is not None
        ),
        ("epochs", default.epochs, config.epochs, source.epochs),
        *([] if config.fact else [("tools", "", str(config.tools or ""), agent.search)]),
    ]
    for option, default_value, given, theirs in options:
        if given not in (default_value, theirs):
            raise ConfigError(
                f"--{option} is {given}; the answers of {config.answers_from} were made with {theirs}, and are judged "
                f"as they are. Leave --{option} out."
            )
    return config.model_copy(update={"policy": agent.policy, "epochs": source.epochs, "stage": "verdicts"})


def _inputs(config: EvalConfig, loaded: Loaded, source: EvaluationManifest | None) -> Inputs:
    inputs = choose(
        loaded, config.subset, limit=config.limit, ids_file=fetched(str(config.ids)) if config.ids else None
    )
    if source is not None:
        inputs = _answered(config, source.inputs, chosen=inputs)
    for path in config.seen:
        seen = find_seen(loaded.examples, read_seen(path))
        inputs = without_seen(inputs, seen, drops=config.drop_seen, where=str(path))
    refuse_incomplete(loaded, inputs.ids)
    return inputs.model_copy(
        update={
            "criteria": str(config.criteria or ""),
            "references": str(config.references or ""),
            "beside_sha256": beside_sha256(config.criteria, config.references),
            "any_version": config.any_version,
            "with_fact": config.fact,
        }
    )


def _answered(config: EvalConfig, source: Inputs, *, chosen: Inputs) -> Inputs:
    """The examples that were answered, or those of them that the user has chosen.

    Raises:
        UsageError: the answers are to another data file, or an example was chosen that was not answered.
    """
    if chosen.sha256 != source.sha256:
        raise UsageError(
            f"{chosen.path} has the sha256 {chosen.sha256[:12]}; the answers of {config.answers_from} are to the examples "
            f"of {source.sha256[:12]}, which was at {source.path}. Give that file with --data."
        )
    if config.limit is None and config.ids is None and config.subset == "mode":
        return chosen.model_copy(update={"ids": source.ids, "subset": source.subset, "left_out": source.left_out})
    missing = [example_id for example_id in chosen.ids if example_id not in set(source.ids)]
    if missing:
        raise UsageError(
            f"{len(missing)} of the {len(chosen.ids)} examples of '{chosen.subset}' are not in {config.answers_from}, the "
            f"first being {missing[0]!r}; it is about '{source.subset}'. Leave --limit, --subset and --ids out "
            "to judge all that it has answered."
        )
    return chosen


def _agent(config: EvalConfig) -> Agent:
    return Agent(
        policy=config.policy,
        policy_sha256="" if config.stage == "verdicts" else policy_sha256(config.policy),
        style=config.style,
        search=str(config.tools or "offline corpus"),
        search_sha256=search_sha256(config.tools),
        reuse=config.reuse,
        bank=str(config.bank or ""),
        bank_sha256=bank_sha256(config.bank if config.reuse == "cross" else None),
        attempts=config.attempts,
        sampling=config.sampling if config.asks_a_model and config.stage != "verdicts" else None,
    )
