"""A small file that unfolds into a large one is refused before anything reads it whole."""

import gzip
import io
import json
import shutil
import time
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pytest

pytest.importorskip("tantivy", reason="needs the extra 'documents'")

from rubricem_agent.data.question_files import MAX_ROW, stream_rows
from rubricem_agent.memory.snapshot import open_snapshot
from rubricem_agent.wiring.tools import open_corpus
from rubricem_agent.yaml_config import read_yaml
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.inputs import read_lines, read_text
from rubricem_env.tools.corpus_index import INDEX_FILE, CorpusIndex
from rubricem_env.tools.failures import ToolFailure
from tests.rubricem_agent.data.test_corpus_build import build, memo, write_rows

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(("text", "number"), [(LAUGHS, "1e\\+12"), ("policy: &p [1, *p]\nout: x\n", "inf")])
def test_a_config_whose_aliases_multiply_is_refused_in_one_sentence_at_once(tmp_path, text, number):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError, match=rf"run\.yaml: its aliases stand for {number} values") as refusal:
        read_yaml(path)
    assert time.process_time() - began < 5
    assert len(str(refusal.value)) < 1_000


def test_a_few_aliases_are_read(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("limits: &l {max_calls: 3}\nothers: [*l, *l]\n")
    assert read_yaml(path) == {"limits": {"max_calls": 3}, "others": [{"max_calls": 3}, {"max_calls": 3}]}


def write_npz(path, *, compressed=False, **arrays):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)


def npy(shape, *, dtype="<f4", content=b"", fortran=False):
    written = io.BytesIO()
    header = {"descr": dtype, "fortran_order": fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(written, header)
    return written.getvalue() + content


BYTES = npy((2,), dtype="|u1", content=b"{}")
SNAPSHOTS = {
    "zeros that unfold": {
        "compressed": True,
        "contents": BYTES,
        "vectors": npy((50_000_000,), content=bytes(2 * 10**8)),
    },
    "a shape of terabytes": {"contents": BYTES, "vectors": npy((10**12,)), "sha256": BYTES},
    "a shape that overflows": {"contents": BYTES, "vectors": npy((2**62, 2**62)), "sha256": BYTES},
    "a negative shape": {"contents": BYTES, "vectors": npy((-1, -4), content=bytes(16)), "sha256": BYTES},
    "objects": {"contents": BYTES, "vectors": npy((1,), dtype="|O", content=b"x"), "sha256": BYTES},
    "text for numbers": {"contents": BYTES, "vectors": npy((1,), dtype="<U4", content=bytes(16)), "sha256": BYTES},
    "no array": {"contents": b"nonsense", "vectors": b"", "sha256": BYTES},
    "a header that is no dictionary": {"contents": b"\x93NUMPY\x01\x00\x02\x00((", "vectors": BYTES, "sha256": BYTES},
    "a member that is missing": {"contents": BYTES},
    "a digest of another": {"contents": BYTES, "vectors": npy((0,)), "sha256": BYTES},
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_bank_snapshot_that_unfolds_or_lies_about_its_size_is_refused(tmp_path, name):
    path = tmp_path / "bank.npz"
    write_npz(path, **SNAPSHOTS[name])
    tracemalloc.start()
    with pytest.raises(FileFormatError) as refusal:
        open_snapshot(path, None)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500


def test_a_file_of_holes_that_is_larger_than_the_memory_is_not_read(tmp_path):
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        file.truncate(2**43)
    for read in (lambda: read_text(path, "rows"), lambda: read_lines(path, "rows"), lambda: open_snapshot(path, None)):
        with pytest.raises(FileFormatError, match="8,796,093,022,208 bytes; a file that is read whole may have"):
            read()


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    rows = (memo(n, f"the owl {n} flies over bridge {n % 17}", year=2000 + n % 20) for n in range(200))
    build(folder / "ix", write_rows(folder / "rows.jsonl", *rows))
    return folder / "ix"


def damaged(body: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(body) + 1))
    spoilt = bytes(rng.integers(0, 256, int(rng.integers(1, 64)), dtype=np.uint8))
    return (body[:at], body[:at] + spoilt + body[at + len(spoilt) :], body + spoilt, body[:at] + body[at + 9 :])[
        int(rng.integers(4))
    ]


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_index_is_a_typed_failure_also_where_its_library_panics(index, tmp_path, seed):
    rng = np.random.default_rng(seed)
    copy = shutil.copytree(index, tmp_path / "copy")
    chosen = sorted(copy.iterdir())[int(rng.integers(len(list(copy.iterdir()))))]
    chosen.write_bytes(damaged(chosen.read_bytes(), rng))
    with suppress(FileFormatError, ToolFailure):
        found = CorpusIndex(copy)
        found.search("owl bridge 3", limit=5)
        found.search("flies", limit=5, years=(2001, 2005))


def test_an_index_loads_no_model_from_a_folder_that_its_manifest_names(index, tmp_path):
    copy = shutil.copytree(index, tmp_path / "copy")
    manifest = json.loads((copy / INDEX_FILE).read_text())
    planted = tmp_path / "planted"
    planted.mkdir()
    manifest |= {"embedder": "qwen3-embedding-0.6b", "embedder_path": str(planted), "dimension": 1024}
    (copy / INDEX_FILE).write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match=r"loads no model\. If you trust that folder, name it: embedder_path"):
        open_corpus(copy)


def test_a_packed_row_that_unfolds_is_refused(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(MAX_ROW // 10**7 + 1):
            file.write(b" " * 10**7)
    assert path.stat().st_size < MAX_ROW // 100
    with pytest.raises(FileFormatError, match="more than 100,000,000 bytes, unpacked"):
        list(stream_rows(path))
