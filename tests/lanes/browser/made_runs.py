"""A folder of runs for the browser.

It has the recorded almanac run twice, with a bank; a run that attacks the page; an evaluation; an ablation; and
runs of other stages than deep research's.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from research.ablation import summarise
from rubricem_agent.config.bank import BankConfig
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.wiring.memory import build_bank
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.reflection import Reflection, ReflectionScore
from rubricem_env.domain.stage_set import DEEP_RESEARCH
from rubricem_env.domain.trajectory import query_key
from rubricem_records.files.packed_lines import PACKED, read_packed
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry
from rubricem_records.rollouts.run_recorder import RunRecorder
from rubricem_records.runs.log_lines import EvaluationLine
from rubricem_records.runs.run_log import RunLog
from rubricem_viewer.ablation import ABLATION_FILE
from tests.rubricem_viewer.folded import folded_attempt
from tests.rubricem_viewer.recorded_stages import record_run
from tests.scaffolds import EIGHT, ONE, WRITING

SAMPLE = Path(__file__).parents[2] / "samples" / "viewer_run"
EVIL = (
    "</script><script>alert('run')</script><img src=x onerror=\"alert('img')\"><svg onload=alert('svg')>"
    "<a href=\"javascript:alert('link')\">x</a>{@html 1}${1}\u202e\u2028"
)
ADDRESSES = ("javascript:alert(1)", "data:text/html,<script>alert(2)</script>", "https://evil.example/?q=<x>")
_POISONED = {
    "question",
    "title",
    "policy",
    "judge",
    "justification",
    "query",
    "cut",
    "failure",
    "model",
    "proposal_failure",
}


def make_runs(folder: Path) -> None:
    """Fill a folder."""
    shutil.copytree(SAMPLE, folder / "almanac")
    shutil.copytree(SAMPLE, folder / "other")
    _change(folder / "other" / "config.json", meta_policy=False, seed=4)
    _fill_bank(folder / "other" / "bank")
    make_newer(folder / "newer")
    make_hostile(folder / "hostile")
    make_evaluation(folder / "evaluation")
    make_ablation(folder / "ablation")
    for scaffold in (WRITING.scaffold, ONE, EIGHT):
        (folder / scaffold.name).mkdir()
        record_run(folder / scaffold.name, scaffold)
    (folder / "folded").mkdir()
    record_run(
        folder / "folded", DEEP_RESEARCH.scaffold, 1, trajectory=folded_attempt(words=EVIL), window_starts=(0, 3)
    )


def make_hostile(folder: Path) -> None:
    """The recorded run with markup in every field, and addresses that are none."""
    folder.mkdir(parents=True)
    metrics = (SAMPLE / "metrics.jsonl").read_text(encoding="utf-8")
    warning = json.dumps({"step": 4, "warning": EVIL})
    (folder / "metrics.jsonl").write_text(f"{metrics}{warning}\n", encoding="utf-8")
    shutil.copy(SAMPLE / "config.json", folder)
    _change(folder / "config.json", system=EVIL)
    recorder = RunRecorder(folder / "record")
    recorder.begin(0, embedder=HashingEmbedder().name)
    renamed: dict[str, str] = {}
    groups = [_hostile_group(json.loads(line), renamed) for line in _record("groups")]
    rollouts = [_hostile_rollout(json.loads(line), renamed) for line in _record("rollouts")]
    for group in groups:
        members = [one for one in rollouts if (one.step, one.place) == (group.step, group.place)]
        recorder.record_step([(group, members)])
    recorded = (SAMPLE / "record" / "lessons.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    lessons = "".join(json.dumps(_poisoned(json.loads(line))) + "\n" for line in recorded)
    with (folder / "record" / "lessons.jsonl").open("a", encoding="utf-8") as file:
        file.write(lessons)


def make_newer(folder: Path) -> None:
    """The recorded run, as a newer release would have written its record."""
    shutil.copytree(SAMPLE, folder)
    index = folder / "record" / "groups.index.jsonl"
    first, _, rest = index.read_text(encoding="utf-8").partition("\n")
    index.write_text(json.dumps({**json.loads(first), "record": 99}) + "\n" + rest, encoding="utf-8")


def make_evaluation(folder: Path, *, limit: int = 6) -> None:
    """The almanac's questions, answered by a script."""
    asked = ("eval", "almanac", "--policy", "scripted", "--limit", str(limit), "--out", str(folder), "--quiet")
    subprocess.run([sys.executable, "-m", "rubricem_agent.cli.main", *asked], check=True, capture_output=True)


def make_ablation(folder: Path) -> None:
    """Four recipes, two seeds each, evaluated three times."""
    names = ("answer_only", "ss_grpo", "answer_only_meta", "whole")
    logs = {name: {seed: _log(0.05 * place, seed) for seed in (0, 1)} for place, name in enumerate(names)}
    found = summarise(logs, steps=16, command="python -m research.ablate configs/ablation_almanac.yaml --seeds 2")
    folder.mkdir()
    (folder / ABLATION_FILE).write_text(found.model_dump_json(), encoding="utf-8")


def _log(gain: float, seed: int) -> RunLog:
    evaluations = [
        EvaluationLine(
            step=8 * at, held_out={str(stage): 0.3 + at * (0.1 + gain) + seed / 50 for stage in STAGES}, valid=0.9
        )
        for at in range(3)
    ]
    return RunLog([], evaluations, [])


def _fill_bank(folder: Path) -> None:
    bank = build_bank(BankConfig(folder=folder, embedder="hashing"))
    for question, lesson in (("Which river is wider?", "Search both."), ("Which law is older?", "Look for the year.")):
        bank.write(
            Reflection(
                query_key=query_key(question),
                question=question,
                rubrics="The answer has both figures.",
                takeaways=lesson,
                score=ReflectionScore(diagnosis=0.6, specificity=0.5, scope=0.7),
            )
        )


def _record(kind: str) -> list[str]:
    return [line.decode() for line in read_packed(SAMPLE / "record" / f"{kind}{PACKED}")]


def _change(path: Path, **settings: Any) -> None:
    fields = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**fields, **settings}), encoding="utf-8")


def _hostile_group(fields: Any, renamed: dict[str, str]) -> GroupEntry:
    before = GroupEntry.model_validate(fields, strict=False)
    group = GroupEntry.model_validate(_poisoned(fields, {"description"}), strict=False)
    renamed |= {old.id: new.id for old, new in zip(before.rubrics, group.rubrics, strict=True)}
    return group.model_copy(update={"refused": (EVIL,)})


def _hostile_rollout(fields: Any, renamed: dict[str, str]) -> RolloutEntry:
    for segment in fields["rollout"]["trajectory"]["segments"]:
        text = segment["text"]
        for place, tag in enumerate(("</think>", "</answer>", "</rubric>", "</call_tool>")):
            text = text.replace(tag, f"{EVIL} {ADDRESSES[place % 3]} {tag}")
        segment["text"] = text.replace("https://", "javascript://") if segment["origin"] == "tool" else text
    text = json.dumps(_poisoned(fields))
    for old, new in renamed.items():
        text = text.replace(old, new)
    return RolloutEntry.model_validate_json(text)


def _poisoned(value: Any, more: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    """Markup behind every text that people or models write."""
    if isinstance(value, list):
        return [_poisoned(one, more) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: one + EVIL
        if isinstance(one, str) and name in _POISONED | more | {"takeaways", "rubrics"}
        else _poisoned(one, more)
        for name, one in value.items()
    }
