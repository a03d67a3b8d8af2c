"""Training, an evaluation, a corpus build and writers of a bank, each killed at forty random moments; `make kill-lane`.

    python -m tests.lanes.fuzz.kill [--seed N] [--kills 40] [--area bank]

Every run draws a new seed and prints it. What was killed and resumed ends like what was never killed: its state and its
record are compared field by field.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from rubricem_agent.data.corpus_build import build_index
from rubricem_agent.learn.collapse import WatchSettings
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.chroma_store import ChromaStore
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelRequest, ModelServer
from rubricem_env.tools.corpus_index import CorpusIndex
from tests.fakes import PlaneEmbedder, make_reflection
from tests.lanes.fuzz.compared import differences
from tests.rubricem_agent.evals.run.conftest import SAMPLES, answers_of
from tests.trainers.local.test_killed import Forked, kill_and_resume, write_config

AT_ONCE = 4
SIGNS = tuple(name for name in WatchSettings.model_fields if name != "window")
PRELOADED = ("chromadb", "rubricem_agent.wiring.evals", "rubricem_agent.memory.chroma_store", "tests.fakes", "httpx2")
FORKS = multiprocessing.get_context("forkserver")
"""Copies of a process that has imported everything: a start takes a fraction of a second."""
FORKS.set_forkserver_preload(["rubricem_trainers.local.command", "tests.trainers.local.test_killed", *PRELOADED])


def kill_training(folder: Path, rng: np.random.Generator, kills: int) -> str:
    steps = kills + 2
    config = write_config(folder, steps=steps)
    # Noise of the judge is what it learns from, so that a long run collapses; nobody looks here.
    config.write_text(config.read_text() + f"watch: {{{', '.join(f'{sign}: null' for sign in SIGNS)}}}\n")
    kill_and_resume(config, folder, rng, steps=steps, kills=kills, again=Forked)
    names = (
        "metrics.jsonl",
        "rollouts.jsonl.gz",
        "groups.jsonl.gz",
        "lessons.jsonl",
        "*.safetensors",
        "*.npz",
        "curriculum*",
    )
    same(folder / "whole", folder / "parts", names)
    return f"the same curve, weights and record of {steps} steps"


def kill_evaluation(folder: Path, rng: np.random.Generator, kills: int) -> str:
    asked: list[ModelRequest] = []
    running: list[BaseProcess] = []
    fatal = [0]

    def answer(request: ModelRequest) -> str:
        asked.append(request)
        if len(asked) == fatal[0]:
            time.sleep(float(rng.uniform(0.0, 0.02)))
            os.kill(running[-1].pid or 0, signal.SIGKILL)
        return '{"criteria_met": true}'

    with serve_loopback(ModelServer(answer)) as url:
        whole, parts = (evaluation(folder, url, out, copies=2 + kills // 18) for out in ("whole", "parts"))
        asyncio.run(run_evaluation(plan_run(whole)))
        items = _logged(whole)
        asked.clear()
        for number in range(kills):
            logged = _logged(parts)
            # What is left is enough for the kills to come.
            fatal[0] = len(asked) + int(rng.integers(1, max(2, (items - logged) // (kills - number))))
            running.append(FORKS.Process(target=evaluate, args=(parts.model_dump_json(),)))
            running[-1].start()
            running[-1].join()
            assert running[-1].exitcode == -signal.SIGKILL
            assert _logged(parts) >= logged, "a verdict that was written is gone"
        fatal[0] = 0
        scores = asyncio.run(run_evaluation(plan_run(parts))).scores
    assert scores.is_complete
    # Everything is met, the item of -6 points too: 6/12, 9/15, 14/20 and 21/27, each equally often.
    assert abs(scores.headline.score - (6 / 12 + 9 / 15 + 14 / 20 + 21 / 27) / 4) < 1e-12
    assert _logged(parts) == items
    # Each start asks once whether the judge is there.
    assert len(asked) <= items + (kills + 1) * (AT_ONCE + 1)
    for run in (whole, parts):
        _sort_lines(run.folder / "verdicts.jsonl")
        _sort_lines(run.folder / "answers.jsonl")
    same(whole.folder, parts.folder, ("verdicts.jsonl", "answers.jsonl", "scores.json"))
    return f"the same verdicts and scores with {len(asked)} calls for {items} items"


def evaluation(folder: Path, url: str, out: str, *, copies: int) -> EvalConfig:
    """An evaluation of several copies of the synthetic file, each under names of its own."""
    rows = [json.loads(line) for line in (SAMPLES / "healthbench.synthetic.jsonl").read_text().splitlines()]
    given = {
        row["id"]: row for row in map(json.loads, Path(answers_of("healthbench", folder)).read_text().splitlines())
    }
    data, answers = folder / "data.jsonl", folder / "given.jsonl"
    renamed = [(f"{row['prompt_id']}-{copy}", row) for copy in range(copies) for row in rows]
    data.write_text("".join(json.dumps(row | {"prompt_id": name}) + "\n" for name, row in renamed))
    answers.write_text("".join(json.dumps(given[row["prompt_id"]] | {"id": name}) + "\n" for name, row in renamed))
    return EvalConfig(
        benchmark="healthbench",
        data=str(data),
        any_version=True,
        policy=f"file:{answers}",
        judges=(f"openai:judge@{url}/v1",),
        judge_concurrency=AT_ONCE,
        out=folder / out,
        retry=RetryPolicy(attempts=1),
    )


def evaluate(config: str) -> None:
    asyncio.run(run_evaluation(plan_run(EvalConfig.model_validate_json(config, strict=False))))


def _logged(config: EvalConfig) -> int:
    verdicts = config.folder / "verdicts.jsonl"
    return verdicts.read_bytes().count(b"\n") if verdicts.exists() else 0


def _sort_lines(path: Path) -> None:
    """By the names of the example and the item; calls end in another order in every run."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    names = ("id", "epoch", "key", "question")
    lines.sort(key=lambda line: json.dumps([line.get(name) for name in names], sort_keys=True))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def kill_corpus(folder: Path, rng: np.random.Generator, kills: int) -> str:
    rows, num_rows = folder / "rows.jsonl", 40 * kills
    words = ("owl", "fox", "river", "bridge", "tall", "wide")
    texts = (f"{words[row % 6]} {words[row % 5]} number{row} " * 4 for row in range(num_rows))
    documents = (
        {"id": f"m{row}", "title": "t", "url": f"https://x.example/{row}", "text": text}
        for row, text in enumerate(texts)
    )
    rows.write_text("".join(json.dumps(document) + "\n" for document in documents))
    begun = time.monotonic()
    build(folder / "whole", rows)
    took = time.monotonic() - begun
    kill_at_random(rng, kills, took, lambda: FORKS.Process(target=build, args=(folder / "parts", rows)))
    build(folder / "parts", rows)
    whole, parts = (CorpusIndex(folder / name) for name in ("whole", "parts"))
    assert parts.manifest.is_complete
    assert (parts.manifest.passages, parts.manifest.rows) == (whole.manifest.passages, whole.manifest.rows)
    for query in (*words, *(f"number{row}" for row in range(0, num_rows, 7))):
        assert [*whole.search(query, limit=50)] == [*parts.search(query, limit=50)], query
    return f"the same {parts.manifest.passages} passages, found in the same order"


def build(folder: Path, rows: Path) -> None:
    build_index(folder, [(rows, rows.name)], roots=[rows], passage=600, read_page=_no_page, commit_every=10)


def _no_page(body: bytes, kind: str) -> str:
    raise AssertionError("the corpus has no pages")


def kill_bank(folder: Path, rng: np.random.Generator, kills: int) -> str:
    lessons = 10 * kills
    begun = time.monotonic()
    write_lessons(folder / "whole", lessons)
    took = time.monotonic() - begun
    kill_at_random(rng, kills, took, lambda: FORKS.Process(target=write_lessons, args=(folder / "parts", lessons)))
    write_lessons(folder / "parts", lessons)
    whole, parts = (
        [(item.id, item.status, item.reason, item.reflection) for item in open_bank(folder / name).items()]
        for name in ("whole", "parts")
    )
    assert whole == parts
    return f"the same {lessons} lessons, {sum(status == 'quarantined' for _, status, *_ in parts)} of them withheld"


def open_bank(folder: Path) -> RubricBank:
    folder.mkdir(exist_ok=True)
    return RubricBank(ChromaStore.open(folder, embedder="plane", dimension=2), PlaneEmbedder())


def write_lessons(folder: Path, count: int) -> None:
    """Writes lessons from where the bank ends; withholds every tenth, and replaces all items now and then."""
    bank = open_bank(folder)
    written = [item.reflection.provenance.step for item in bank.items()]
    assert written == [*range(len(written))], "a lesson is lost or there twice"
    for number in range(len(written), count):
        item = bank.write(make_reflection(f"at {number / 10}", step=number))
        _withhold(bank, number)
        if number % 25 == 24:
            bank.restore(bank.contents())
        assert item.id == number + 1
    _withhold(bank, count - 1)


def _withhold(bank: RubricBank, last: int) -> None:
    """Every tenth lesson; the last one again if a kill came between its two writes."""
    for item in bank.items()[max(0, last - 10) :]:
        if item.reflection.provenance.step % 10 == 9 and item.status == "active":
            bank.change(item.id, "quarantined", "every tenth")


def kill_at_random(rng: np.random.Generator, kills: int, took: float, make: Callable[[], BaseProcess]) -> None:
    """Each process lives for a random time, of which all together have about what one whole run takes."""
    killed = 0
    for moment in rng.uniform(0.0, 1.6 * took / kills, kills):
        process = make()
        process.start()
        process.join(float(moment) + 0.05)
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), f"it ended with {process.exitcode}"
        killed += process.exitcode == -signal.SIGKILL
    assert killed > kills // 2, f"only {killed} of {kills} were killed while they worked"


def same(whole: Path, parts: Path, names: tuple[str, ...]) -> None:
    found = differences(whole, parts, names)
    assert not found, "\n".join(found[:20])


AREAS = {
    "bank": kill_bank,
    "corpus": kill_corpus,
    "evaluation": kill_evaluation,
    "training": kill_training,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes.fuzz.kill", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--area", choices=sorted(AREAS), action="append")
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    for name in given.area or AREAS:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = AREAS[name](Path(folder), np.random.default_rng(given.seed), given.kills)
        sys.stdout.write(f"{name}: killed {given.kills} times, {outcome}; {time.monotonic() - begun:.0f} s\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
