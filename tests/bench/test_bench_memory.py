"""The bank against FAISS on the same vectors, and what one write costs as the bank grows.

    python -m pytest tests/bench/test_bench_memory.py --benchmark-only -p no:cacheprovider

FAISS (`pip install faiss-cpu`) is asked for the two nearest of a flat index; the bank for a whole retrieval, with its
lock, its look at the store, its exclusions and its order of ties. Each round asks 50 questions.
"""

import numpy as np
import pytest

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import unit_rows
from rubricem_agent.memory.item_index import VectorTable
from rubricem_agent.memory.store import MemoryStore
from rubricem_env.domain.trajectory import query_key
from rubricem_records.bank.bank_items import BankItem, StoredItem
from tests.fakes import make_reflection

DIMENSION = 384
NUM_QUESTIONS = 50
SIZES = [5_000, 100_000]


class KnownVectors:
    """Embeds "question N" as row N: the time of a model is not what is measured."""

    name = "known"
    dimension = DIMENSION

    def __init__(self, rows):
        self.rows = rows

    def embed(self, texts):
        return self.rows[[int(text.rpartition(" ")[2]) for text in texts]]


@pytest.fixture(scope="module", params=SIZES)
def vectors(request):
    return unit_rows(np.random.default_rng(0).normal(size=(request.param, DIMENSION)))


@pytest.fixture(scope="module")
def asked():
    return unit_rows(np.random.default_rng(1).normal(size=(NUM_QUESTIONS, DIMENSION)))


@pytest.fixture(scope="module")
def bank(vectors, asked):
    store = MemoryStore(embedder="known", dimension=DIMENSION)
    template = make_reflection("question 0")
    rows = []
    for number, vector in enumerate(vectors, start=1):
        update = {"query_key": query_key(f"item {number}"), "question": f"item {number}"}
        rows.append(StoredItem(BankItem(id=number, revision=1, reflection=template.model_copy(update=update)), vector))
    store.put(rows)
    return RubricBank(store, KnownVectors(asked))


@pytest.fixture(scope="module")
def flat(vectors):
    faiss = pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    index = faiss.IndexFlatIP(DIMENSION)
    index.add(vectors)
    return index


def ask_bank(bank):
    return [bank.retrieve(f"question {number}", "cross") for number in range(NUM_QUESTIONS)]


def ask_flat(flat, asked):
    return [flat.search(asked[number : number + 1], 2) for number in range(NUM_QUESTIONS)]


@pytest.mark.benchmark(group="top 2 for 50 questions")
def test_bench_bank(benchmark, bank, vectors):
    benchmark.extra_info["items"] = len(vectors)
    benchmark.pedantic(ask_bank, args=(bank,), rounds=10, warmup_rounds=2)


@pytest.mark.benchmark(group="top 2 for 50 questions")
def test_bench_faiss_flat(benchmark, flat, asked, vectors):
    benchmark.extra_info["items"] = len(vectors)
    benchmark.pedantic(ask_flat, args=(flat, asked), rounds=10, warmup_rounds=2)


@pytest.mark.benchmark(group="recall")
def test_bench_recall_against_faiss(benchmark, bank, flat, asked):
    found = benchmark.pedantic(ask_bank, args=(bank,), rounds=1)
    expected = [set(rows[0] + 1) for _, rows in ask_flat(flat, asked)]
    shared = sum(len({hit.item.id for hit in hits} & rows) for hits, rows in zip(found, expected, strict=True))
    benchmark.extra_info["recall"] = shared / (2 * NUM_QUESTIONS)
    assert shared == 2 * NUM_QUESTIONS


@pytest.fixture(params=[100, 10_000])
def durable_bank(request, tmp_path):
    pytest.importorskip("chromadb", reason="the extra `bank` is not installed")
    from rubricem_agent.memory.chroma_store import ChromaStore

    rows = unit_rows(np.random.default_rng(2).normal(size=(request.param + 1_000, DIMENSION)))
    store = ChromaStore.open(tmp_path, embedder="known", dimension=DIMENSION)
    template = make_reflection("question 0")
    items = []
    for number in range(request.param):
        update = {"query_key": query_key(f"question {number}"), "question": f"question {number}"}
        item = BankItem(id=number + 1, revision=number + 1, reflection=template.model_copy(update=update))
        items.append(StoredItem(item, rows[number]))
    store.replace_all(items)
    return RubricBank(store, KnownVectors(rows)), request.param


@pytest.mark.benchmark(group="50 durable writes to Chroma")
def test_bench_write(benchmark, durable_bank):
    bank, size = durable_bank
    numbers = iter(range(size, size + 1_000))

    def write_fifty():
        for _ in range(50):
            bank.write(make_reflection(f"question {next(numbers)}"))

    benchmark.pedantic(write_fifty, rounds=10, warmup_rounds=2)


@pytest.mark.benchmark(group="append one vector")
@pytest.mark.parametrize("size", [100, 100_000])
def test_bench_append(benchmark, size):
    row = unit_rows(np.ones((1, DIMENSION)))[0]
    table = VectorTable(DIMENSION, kinds=1)
    for _ in range(size):
        table.append(row)
    benchmark.pedantic(table.append, args=(row,), rounds=2_000)
