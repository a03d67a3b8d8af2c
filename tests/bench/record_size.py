"""What a step of 32 x 8 attempts of the paper's size takes in a record: `python -m tests.bench.record_size TEXT ...`.

The attempts are pieces of the given text files, 82 kB each, tokenised by a BPE of 50,000 tokens trained on them; a
third of the tokens has the log-probabilities of a policy. It prints megabytes and seconds of a step.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from rubricem_env.testing.judges import attempt
from rubricem_records.rollouts.packed_tokens import pack_tokens
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry
from rubricem_records.rollouts.run_recorder import RunRecorder
from tests.bench.test_bench_viewer import rollout

GROUPS, GROUP, CHARS, TOKENS, PIECE = 32, 8, 82_000, 19_400, 4_000
PAPER_VOCABULARY = 151_643


def main() -> None:
    texts = [Path(name).read_text(encoding="utf-8", errors="replace") for name in sys.argv[1:]]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=50_000, show_progress=False))
    rng = np.random.default_rng(0)
    renamed = rng.permutation(PAPER_VOCABULARY)
    examples = [entry(texts, tokenizer, renamed, rng) for _ in range(GROUP)]
    group = GroupEntry(step=1, place=0, query_key="k", question="?")
    with TemporaryDirectory() as folder:
        recorder = RunRecorder(Path(folder))
        recorder.begin(0, embedder="hashing-512")
        started = time.process_time()
        recorder.record_step([(group, examples)] * GROUPS)
        seconds = time.process_time() - started
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    sys.stdout.write(f"{size / 1e6:.1f} MB and {seconds:.1f} processor seconds a step\n")


def entry(texts: list[str], tokenizer: Tokenizer, renamed: np.ndarray, rng: np.random.Generator) -> RolloutEntry:
    pieces = []
    while sum(map(len, pieces)) < CHARS:
        text = texts[rng.integers(len(texts))]
        start = rng.integers(max(1, len(text) - PIECE))
        pieces.append(text[start : start + PIECE])
    text = "".join(pieces)[:CHARS].encode("utf-8", "replace").decode()
    ids = renamed[tokenizer.encode(text).ids][:TOKENS]
    own = len(ids) // 3
    logprobs = -rng.exponential(0.4, own) * (rng.random(own) < 0.7)
    tokens = RolloutTokens(
        ids=tuple(ids.tolist()),
        stage_ids=(1,) * own + (-1,) * (len(ids) - own),
        logprobs=(*logprobs.tolist(), *[0.0] * (len(ids) - own)),
        prompt_length=0,
    )
    played = Rollout(trajectory=attempt(page=text), policy="scripted")
    return rollout(1, 0, 0).model_copy(update={"rollout": played, "tokens": pack_tokens(tokens)})


if __name__ == "__main__":
    main()
