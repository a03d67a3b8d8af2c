"""An episode of a hundred calls, as BrowseComp-Plus has them, against 100,000 documents: time and memory of each call.

    python -m tests.bench.long_episodes [--documents 100000] [--calls 100] [--episodes 5] [--seed 0] [--folder DIR]

The policy is scripted: it searches for words of a document, and weighs in a sentence what it found. Overhead is the
processor time of a call on its thread without the search: parsing the turn, the observation, folds, and the view that
a policy would read. The index is built once and kept in the folder.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rubricem_env.domain.trajectory import Query, ToolCall
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.tools.corpus_index import CorpusIndex
from rubricem_env.tools.corpus_search import offline_toolbox
from tests.bench.corpus_scale import build, write_rows

CONTEXT = ContextLimits(fold_at=24_000, fold_to=8_000, keep=3)
SHARE = 10
"""Calls whose median is compared."""


async def play(toolbox, queries, calls):
    """The overhead of each call and the time of its search, in seconds, and the tokens of the view."""
    limits = EpisodeLimits(max_calls=calls, max_turns=calls + 5, max_tokens=10_000_000)
    episode = Episode(Query(question="Which document is it?"), prompt="Search.", limits=limits, context=CONTEXT)
    overhead, searches, sizes = [], [], []
    for number, query in enumerate(queries[:calls]):
        began = time.thread_time()
        weighed = f"<state_evaluation>Search {number}: none of these; {query} is left.</state_evaluation>"
        call = episode.emit(f'<think>Next.</think>{weighed}<call_tool name="google_search">{query}</call_tool>')
        assert isinstance(call, ToolCall)
        before_search = time.thread_time()
        result = await toolbox.call(call)
        after_search = time.thread_time()
        episode.observe(result)
        messages = episode.view.messages
        overhead.append(time.thread_time() - after_search + before_search - began)
        sizes.append(sum(len(message["content"]) for message in messages))
        searches.append(after_search - before_search)
    return overhead, searches, sizes, episode


def held():
    """The memory of the process now, in MiB, without the pages of the index, which the system may take back."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 2**10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None)
    chosen = parser.parse_args()
    root = chosen.folder or Path(tempfile.mkdtemp())
    root.mkdir(parents=True, exist_ok=True)
    index, asked = root / "index", root / "queries.txt"
    if not index.exists():
        queries = write_rows(root / "rows.jsonl", chosen.documents, chosen.seed)
        asked.write_text("\n".join(queries), encoding="utf-8")
        sys.stdout.write(f"built in {build(index, root / 'rows.jsonl'):.0f} s\n")
    queries = asked.read_text(encoding="utf-8").split("\n")
    toolbox = offline_toolbox(CorpusIndex(index))
    asyncio.run(play(toolbox, queries, chosen.calls))
    gc.collect()
    overheads, searches, memory = [], [], []
    for number in range(1, chosen.episodes + 1):
        begin = number * chosen.calls % (len(queries) - chosen.calls)
        overhead, search, sizes, episode = asyncio.run(play(toolbox, queries[begin:], chosen.calls))
        overheads.append(overhead)
        searches.append(search)
        gc.collect()
        memory.append(held())
    # A call of all episodes: the median leaves out what else ran, and the few calls that fold.
    each = [statistics.median(column) for column in zip(*overheads, strict=True)]
    tenths = [statistics.median(each[start : start + SHARE]) for start in range(0, chosen.calls, SHARE)]
    first, most = tenths[0], max(tenths)
    halves = [sum(sum(row[: chosen.calls // 2]) for row in overheads), sum(sum(row) for row in overheads)]
    searched = statistics.median(second for row in searches for second in row)
    folds = [fold.turn for fold in episode.trajectory.folds]
    folding = [f"{1000 * overheads[-1][turn - 1]:.2f}" for turn in folds]
    sys.stdout.write(
        f"{chosen.documents:,} documents, {chosen.calls} calls, {chosen.episodes} episodes, seed {chosen.seed}\n"
        f"the view of the last episode: at most {max(sizes):,} characters, at the end {sizes[-1]:,}\n"
        f"search: {1000 * searched:.2f} ms\n"
        f"overhead of a call, median of each {SHARE}: {', '.join(f'{1000 * tenth:.3f}' for tenth in tenths)} ms "
        f"(at most x {most / first:.2f})\n"
        f"calls that fold, {folds}: {', '.join(folding)} ms\n"
        f"time of all calls against the first half: x {halves[1] / halves[0]:.2f}\n"
        f"memory after each episode, MiB: {', '.join(f'{size:.0f}' for size in memory)}\n"
    )


if __name__ == "__main__":
    main()
