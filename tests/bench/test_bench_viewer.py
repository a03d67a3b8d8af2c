r"""The viewer over a run of 10,000 trajectories and a bank of 100,000 items.

OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 python -m pytest tests/bench/test_bench_viewer.py \
    --benchmark-only --benchmark-disable-gc
"""

import json
import statistics
import time
import tracemalloc

import httpx2
import numpy as np
import pytest

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.store import MemoryStore
from rubricem_agent.wiring.viewer import RecordedSearch
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.domain.reflection import Reflection
from rubricem_env.domain.trajectory import query_key
from rubricem_env.judge.judgements import RolloutJudgement
from rubricem_env.testing.judges import attempt, policy
from rubricem_env.testing.loopback import serve_loopback
from rubricem_records.bank.bank_items import BankItem, StoredItem
from rubricem_records.rollouts.packed_tokens import pack_tokens
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry
from rubricem_records.rollouts.run_recorder import RunRecorder
from rubricem_viewer.record_reader import RunRecordReader
from rubricem_viewer.server import make_app
from rubricem_viewer.shelf import RunShelf

ROLLOUTS, GROUP, PER_STEP = 10_000, 8, 32
ITEMS = 100_000
TOKEN = "t"
NAMES = ("plan", "research", "review", "answer")


def rollout(step, place, number):
    score = (step * 7 + place * 3 + number) % 11 / 10
    outcomes = {stage: StageScore(score=score) for stage in STAGES}
    size = 1_200
    tokens = RolloutTokens(
        ids=tuple(range(size)), stage_ids=(-1,) * 300 + (1,) * 900, logprobs=(-0.25,) * size, prompt_length=300
    )
    return RolloutEntry(
        step=step,
        place=place,
        attempt=number,
        rollout=Rollout(trajectory=attempt(), policy="scripted"),
        tokens=pack_tokens(tokens),
        judged=RolloutJudgement(judgement=Judgement.of(outcomes)),
        advantages=(0.0, 0.1, 0.2, 0.3),
    )


def record_run(folder, rollouts):
    folder.mkdir(parents=True)
    recorder = RunRecorder(folder / "record")
    recorder.begin(0, embedder="hashing-512")
    for number in range(rollouts // GROUP):
        step, place = number // PER_STEP + 1, number % PER_STEP
        question = f"Which of the rivers number {number // 2} is wider at low water?"
        group = GroupEntry(step=step, place=place, query_key=query_key(question), question=question)
        recorder.record_step([(group, [rollout(step, place, one) for one in range(GROUP)])])
    lines = [{"step": 0, "held_out": dict.fromkeys(NAMES, 0.5), "valid": 1.0}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return record_run(tmp_path_factory.mktemp("viewer") / "run", ROLLOUTS)


@pytest.fixture(scope="module")
def full_bank():
    embedder = HashingEmbedder(64)
    store = MemoryStore(embedder=embedder.name, dimension=64)
    rows = np.random.default_rng(0).normal(size=(ITEMS, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    store.put([StoredItem(item(number), rows[number - 1]) for number in range(1, ITEMS + 1)])
    return RubricBank(store, embedder)


def item(number):
    question = f"Which of the rivers number {number} is wider?"
    reflection = Reflection(
        query_key=query_key(question), question=question, rubrics="Both figures.", takeaways="Search each by its name."
    )
    return BankItem(id=number, revision=number, reflection=reflection)


def viewer(folder, bank=None):
    """A server that has just started: nothing of the run has been read."""
    shelf = RunShelf(folder, lambda _: bank, bank=folder if bank is not None else None, make_search=RecordedSearch)
    return serve_loopback(make_app(shelf, token=TOKEN))


def client_of(address):
    return httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)


def test_the_first_page_after_the_start(benchmark, run):
    """Everything that a browser waits for: the list of runs, the run, its first page.

    Held to seconds of this process, server and client together, which are the same on a busy machine.
    """
    spent = []

    def fresh():
        server = viewer(run)
        client = client_of(server.__enter__())
        return (server, client), {}

    def look(server, client):
        began = time.process_time()
        only = client.get("/api/runs").json()["runs"][0]
        page = client.get(f"/api/runs/{only['id']}/trajectories").json()
        spent.append(time.process_time() - began)
        client.close()
        server.__exit__(None, None, None)
        assert (only["recorded"], page["total"], len(page["rows"])) == (ROLLOUTS, ROLLOUTS, 50)

    benchmark.pedantic(look, setup=fresh, rounds=5)
    print(f"{statistics.median(spent):.2f} s of this process")  # noqa: T201
    assert statistics.median(spent) < 1.0


@pytest.fixture(scope="module")
def ask(run, full_bank):
    with viewer(run, full_bank) as address, client_of(address) as client:
        way = f"/api/runs/{client.get('/api/runs').json()['runs'][0]['id']}"
        client.get(f"{way}/trajectories")
        yield lambda path: client.get(way + path).json()


@pytest.mark.parametrize(
    ("path", "matched"),
    [
        ("/trajectories?q=number 123", 16),
        ("/trajectories?sort=best&stage=research", ROLLOUTS),
        ("/trajectories?page=200&sort=oldest", ROLLOUTS),
        ("/questions?q=number 12", 11),
        ("/bank?q=number 9999", 11),
        ("/bank?page=2000", ITEMS),
    ],
)
def test_filtering_while_typing(benchmark, ask, path, matched):
    assert benchmark(ask, path)["matched"] == matched


@pytest.mark.parametrize("path", ["/trajectories/20-0-3", "/trajectories/20-0-3/tokens", "/groups/20-0", "/state"])
def test_one_of_ten_thousand(benchmark, ask, path):
    assert benchmark(ask, path)


def test_a_search_among_100_000_items(benchmark, ask):
    assert len(benchmark(ask, "/bank/search?text=a wider river")["rows"]) == 10


def test_a_trajectory_of_200_000_tokens(benchmark, tmp_path):
    size = 200_000
    tokens = RolloutTokens(
        ids=tuple(range(size)), stage_ids=(-1,) + (1,) * (size - 1), logprobs=(-0.25,) * size, prompt_length=1
    )
    folder = record_run(tmp_path / "run", 0)
    recorder = RunRecorder(folder / "record")
    recorder.begin(0, embedder="hashing-512")
    short = attempt()
    turns = [policy("<think>" + "a word and another " * 2_000 + "</think>") for _ in range(20)]
    long = short.model_copy(update={"segments": (*short.segments[:-1], *turns, short.segments[-1])})
    entry = rollout(1, 0, 0)
    whole = entry.model_copy(
        update={"rollout": Rollout(trajectory=long, policy="scripted"), "tokens": pack_tokens(tokens)}
    )
    recorder.record_step([(GroupEntry(step=1, place=0, query_key="k", question="?"), [whole])])
    with viewer(folder) as address, client_of(address) as client:
        way = f"/api/runs/{client.get('/api/runs').json()['runs'][0]['id']}/trajectories/1-0-0"
        answer = benchmark(client.get, way)
        page = client.get(f"{way}/tokens?offset=150000").json()

    assert (page["total"], len(page["texts"])) == (size, 2_000)
    assert len(answer.content) < 1_000_000


def test_memory_of_a_run_grows_by_its_index_alone(run, tmp_path):
    small = record_run(tmp_path / "small", 1_000)

    bytes_each = (held_by(run) - held_by(small)) / (ROLLOUTS - 1_000)

    data = (run / "record" / "rollouts.jsonl.gz").stat().st_size / ROLLOUTS
    print(f"{bytes_each:.0f} bytes in memory for each rollout; {data:.0f} on disk")  # noqa: T201
    assert bytes_each < 400


def held_by(folder):
    """Bytes that a reader holds once it has read everything there is."""
    tracemalloc.start()
    reader = RunRecordReader(folder)
    reader.refresh()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(reader.table.rows) > 0
    return held
