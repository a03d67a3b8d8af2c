"""The viewer over a large synthetic run.

    python -m tests.bench.viewer_scale --folder DIR [--rollouts 100000] [--tokens 1200]

Writes the record once, then serves it in this process and times each page three times; the first page also without
the columns of the record, in turn. An attempt's text is that of the test-suite, its tokens are --tokens long. With
--whole N that is so in the last N steps alone: the attempts of earlier steps have 400 tokens. Memory is what the
process holds beside the start.
"""

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from rubricem_env.domain.trajectory import query_key
from rubricem_records.rollouts.packed_tokens import PackedTokens, pack_tokens
from rubricem_records.rollouts.rollout_columns import COLUMNS_FILE
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.run_record import GroupEntry
from rubricem_records.rollouts.run_recorder import RunRecorder
from tests.bench.test_bench_viewer import GROUP, PER_STEP, client_of, rollout, viewer

SHORT = 400


def write_run(folder: Path, steps: int, tokens: int, whole: int) -> None:
    folder.mkdir(parents=True)
    recorder = RunRecorder(folder / "record")
    recorder.begin(0, embedder="hashing-512")
    example = rollout(1, 0, 0)
    short, long = packed(SHORT), packed(tokens)
    for step in range(1, steps + 1):
        groups = []
        for place in range(PER_STEP):
            question = f"Which of the rivers number {(step * PER_STEP + place) // 2} is wider at low water?"
            group = GroupEntry(step=step, place=place, query_key=query_key(question), question=question)
            fields = {"step": step, "place": place, "tokens": long if step > steps - whole else short}
            groups.append((group, [example.model_copy(update={**fields, "attempt": n}) for n in range(GROUP)]))
        recorder.record_step(groups)
    (folder / "metrics.jsonl").write_text('{"step": 0, "held_out": {}, "valid": 1.0}\n')


def packed(size: int) -> PackedTokens:
    return pack_tokens(
        RolloutTokens(
            ids=tuple(n % 50_000 for n in range(size)),
            stage_ids=(-1,) * 300 + (1,) * (size - 300),
            logprobs=tuple(-(n % 97) / 97 for n in range(size)),
            prompt_length=300,
        )
    )


@contextmanager
def columns_hidden(run: Path, *, is_hidden: bool) -> Iterator[None]:
    """As if an earlier release had recorded the run."""
    columns = run / "record" / COLUMNS_FILE
    aside = columns.with_suffix(".aside")
    if is_hidden:
        columns.rename(aside)
    try:
        yield
    finally:
        if is_hidden:
            aside.rename(columns)


def first_page(address: str) -> tuple[float, float]:
    """Seconds on the clock and of the processor, for the list of runs and the first page of one."""
    with client_of(address) as client:
        began, used = time.perf_counter(), time.process_time()
        way = f"/api/runs/{client.get('/api/runs').json()['runs'][0]['id']}"
        client.get(f"{way}/trajectories", timeout=120).raise_for_status()
        return time.perf_counter() - began, time.process_time() - used


def held() -> float:
    """GiB resident at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=1_200)
    parser.add_argument("--whole", type=int, default=None, help="steps with all their tokens on disk; all by default")
    chosen = parser.parse_args()
    steps = chosen.rollouts // (GROUP * PER_STEP)
    run = chosen.folder / "run"
    if not run.exists():
        began = time.perf_counter()
        write_run(run, steps, chosen.tokens, steps if chosen.whole is None else chosen.whole)
        size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file()) / 2**30
        sys.stdout.write(f"written in {time.perf_counter() - began:.0f} s, {size:.2f} GiB\n")
    before = held()
    for _ in range(3):
        for name in ("as recorded", "without columns"):
            with columns_hidden(run, is_hidden=name == "without columns"), viewer(run) as address:
                clock, processor = first_page(address)
            sys.stdout.write(f"first page, {name}: {clock:.2f} s, {processor:.2f} s of processor time\n")
    with viewer(run) as address, client_of(address) as client:
        first_page(address)
        sys.stdout.write(f"memory after the first page: {held() - before:.2f} GiB\n")
        way = f"/api/runs/{client.get('/api/runs').json()['runs'][0]['id']}"
        for path in (
            "/trajectories",
            "/trajectories?page=400&sort=oldest",
            "/trajectories?sort=best&stage=research",
            "/questions?q=number 12",
            f"/trajectories/{steps}-0-3",
            f"/trajectories/{steps}-0-3/tokens",
            f"/groups/{steps}-0",
            "/curves",
            "/state",
        ):
            taken = []
            for _ in range(3):
                began, used = time.perf_counter(), time.process_time()
                answer: httpx2.Response = client.get(f"{way}{path}", timeout=120)
                answer.raise_for_status()
                taken.append((time.perf_counter() - began, time.process_time() - used))
            best = [min(column) for column in zip(*taken, strict=True)]
            sys.stdout.write(f"{path}: {best[0]:.3f} s, {best[1]:.3f} s of processor time, {held() - before:.2f} GiB\n")
            sys.stdout.flush()
