"""Measure a step of the local trainer beside one of TRL's GRPOTrainer: make bench-trl, or in its environment.

    python tests/bench/trl_step.py [--model FOLDER] [--references 512] [--steps 5] [--their-rows 8] [--json FILE]

Both start from one model (the policy `tiny`, a Qwen3, where none is named), get the same prompts as the same ids, and
write exactly `--tokens` tokens for each of eight attempts at eight questions. In float32 on one thread, in one process,
a step of ours before each of theirs; the first of each is not counted. Attempts have one turn and random rewards: over
several turns no two trainers end at equal counts.

What an attempt of equal length takes: theirs may not draw the end of a turn before its last token, ours does not heed
it. Left to each is how it samples, pads, packs and passes over a batch. Prints one JSON object.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from rubricem_agent.learn.samples import Batch, Sample, pad_batch
from rubricem_agent.policy.base import TINY, TINY_SYSTEM, model_folder
from rubricem_agent.policy.dense_decoder import DenseDecoder
from rubricem_agent.policy.drafts import Drafts
from rubricem_agent.policy.local import Batcher, CacheRow, Job, RandomNumbers, load_model
from rubricem_agent.prompting import AgentPrompt
from rubricem_env.tools.corpus_search import read_documents
from rubricem_env.world.almanac import shipped_corpus_path
from rubricem_env.world.offline import offline_queries
from rubricem_records.rollouts.rollout_tokens import NO_STAGE
from trainers.local.learner import Learner, LossSettings, policy_logprobs
from trainers.local.packed import pack_samples

QUESTIONS, GROUP_SIZE = 8, 8
ATTEMPTS = QUESTIONS * GROUP_SIZE
LEARNING_RATE, MAX_NORM, KL, PACK_TOKENS, DRAFT_TOKENS = 1e-4, 1.0, 0.001, 2_048, 3
STEP, SAMPLING, REFERENCE, UPDATE = "step", "sampling", "log-probabilities under the reference", "update"


class Shape(NamedTuple):
    """What both are given."""

    prompts: list[str]
    ids: list[list[int]]
    tokens: int
    """Of each attempt."""


class Watch:
    """CPU seconds of the parts of each step: other work on the machine does not lengthen them."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        began = time.process_time()
        try:
            yield
        finally:
            self.steps[-1][part] = self.steps[-1].get(part, 0.0) + time.process_time() - began


class WholeTurn:
    """A turn that only its limit ends."""

    def __init__(self) -> None:
        self.logprobs: list[float] = []

    def take(self, token_id: int, logprob: float) -> None:
        self.logprobs.append(logprob)


class Ours:
    """The local trainer's step: sample, normalise rewards by group, one update."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.watch = Watch()
        self._shape = shape
        self._rng = np.random.default_rng(0)
        longest = max(map(len, shape.ids)) + shape.tokens
        model = load_model(folder)
        self._batcher = Batcher(DenseDecoder(model, rows=ATTEMPTS, max_length=longest), drafts=Drafts(DRAFT_TOKENS))
        self._learner = Learner(
            model,
            learning_rate=LEARNING_RATE,
            loss=LossSettings(kl_coefficient=KL),
            max_grad_norm=MAX_NORM,
            micro_batch_tokens=PACK_TOKENS,
        )
        self._frozen = load_model(folder)

    def step(self) -> None:
        self.watch.steps.append({})
        with self.watch.timing(STEP):
            with self.watch.timing(SAMPLING):
                samples = asyncio.run(self._sample())
            with self.watch.timing(UPDATE):
                batch = pad_batch(samples, pad_id=0)
                self._learner.update(batch)
        with self.watch.timing(REFERENCE):
            self._read(batch)
        step = self.watch.steps[-1]
        step[UPDATE] -= step[REFERENCE]

    async def _sample(self) -> list[Sample]:
        tokens, turns = self._shape.tokens, [WholeTurn() for _ in range(ATTEMPTS)]
        jobs = [
            Job(
                CacheRow(row),
                self._shape.ids[row // GROUP_SIZE],
                turn=turn,
                max_tokens=tokens,
                temperature=1.0,
                numbers=RandomNumbers(self._rng),
            )
            for row, turn in enumerate(turns)
        ]
        await asyncio.gather(*map(self._batcher.run, jobs))
        rewards = self._rng.random((QUESTIONS, GROUP_SIZE))
        advantages = (rewards - rewards.mean(1, keepdims=True)) / rewards.std(1, keepdims=True)
        samples = []
        for job, turn, advantage in zip(jobs, turns, advantages.ravel(), strict=True):
            before = len(job.ids) - tokens
            credit = [0.0] * before + [float(advantage)] * tokens
            logprobs = [0.0] * before + turn.logprobs
            samples.append(Sample(job.ids, [NO_STAGE] * before + [0] * tokens, credit, logprobs, 1.0, 0))
        return samples

    @torch.no_grad()
    def _read(self, batch: Batch) -> None:
        """What the update does once for its reference, done again by itself to be measured."""
        for pack in pack_samples(batch, max_tokens=PACK_TOKENS):
            policy_logprobs(self._frozen, pack)


class TimedTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer with a watch on it."""

    watch: Watch
    shape: Shape

    def _generate_single_turn(self, prompt_ids: list[list[int]], *given: Any, **named: Any) -> Any:
        with self.watch.timing(SAMPLING):
            completions, logprobs = super()._generate_single_turn(prompt_ids, *given, **named)
        wanted = sorted(ids for ids in self.shape.ids for _ in range(GROUP_SIZE))
        if sorted(prompt_ids) != wanted or {len(ids) for ids in completions} != {self.shape.tokens}:
            raise RuntimeError("the two trainers were not given the same prompts, or did not write as much.")
        return completions, logprobs

    def _get_per_token_logps_and_entropies(self, *given: Any, **named: Any) -> Any:
        if torch.is_grad_enabled():
            return super()._get_per_token_logps_and_entropies(*given, **named)
        with self.watch.timing(REFERENCE):
            return super()._get_per_token_logps_and_entropies(*given, **named)


class Turns(TrainerCallback):
    """A step of ours before each of theirs; nothing of ours is on their watch."""

    def __init__(self, ours: Ours, watch: Watch) -> None:
        self._ours = ours
        self._watch = watch
        self._began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._ours.step()
        self._watch.steps.append({})
        self._began = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        step = self._watch.steps[-1]
        step[STEP] = time.process_time() - self._began
        step[UPDATE] = step[STEP] - step[SAMPLING] - step[REFERENCE]


def their_trainer(
    folder: Path, shape: Shape, tokenizer: PreTrainedTokenizerFast, *, steps: int, rows: int, out: str
) -> TimedTrainer:
    """TRL as it comes, but for what makes the two equal and `rows`, which is as many as it passes over at once."""
    rng = np.random.default_rng(0)
    settings = GRPOConfig(
        output_dir=out,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=ATTEMPTS // rows,
        num_generations=GROUP_SIZE,
        max_completion_length=shape.tokens,
        generation_kwargs={"min_new_tokens": shape.tokens},
        max_steps=steps,
        temperature=1.0,
        beta=KL,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=MAX_NORM,
    )
    trainer = TimedTrainer(
        model=str(model_folder(folder)),
        reward_funcs=lambda completions, **_: rng.random(len(completions)).tolist(),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": shape.prompts}),
        processing_class=tokenizer,
    )
    trainer.watch, trainer.shape = Watch(), shape
    return trainer


def make_shape(tokenizer: PreTrainedTokenizerFast, *, references: int, tokens: int) -> Shape:
    """The first questions of the almanac under the tiny policy's prompt, after `references` tokens of its pages."""
    pages = " ".join(page.text for page in read_documents(shipped_corpus_path()))
    page_ids = tokenizer(pages[: 40 * references + 40])["input_ids"]
    prompt = AgentPrompt(TINY_SYSTEM, "")
    prompts = []
    for place, query in enumerate(offline_queries()[:QUESTIONS]):
        block = tokenizer.decode(page_ids[place * references : (place + 1) * references])
        opening = prompt.opening(query, references=block)
        messages = [{"role": "system", "content": opening.system}, {"role": "user", "content": opening.user}]
        prompts.append(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    return Shape(prompts, tokenizer(prompts)["input_ids"], tokens)


def figures(shape: Shape, ours: Sequence[dict[str, float]], theirs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians of the steps after the first, and the ratios of the medians."""
    parts = (STEP, SAMPLING, REFERENCE, UPDATE)
    seconds = {
        name: {part: round(statistics.median(step[part] for step in steps[1:]), 3) for part in parts}
        for name, steps in (("ours", ours), ("TRL", theirs))
    }
    ratios = [their[STEP] / our[STEP] for our, their in zip(ours[1:], theirs[1:], strict=True)]
    return {
        "prompt tokens": round(statistics.mean(map(len, shape.ids)), 1),
        "attempts": ATTEMPTS,
        "tokens of an attempt": shape.tokens,
        "seconds": seconds,
        "TRL / ours": {part: round(seconds["TRL"][part] / seconds["ours"][part], 2) for part in parts},
        "TRL / ours, step by step": [round(ratio, 2) for ratio in ratios],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path(TINY), help="a Llama, a Mistral, a Qwen2 or a Qwen3")
    parser.add_argument("--references", type=int, default=0, help="tokens before each question, as a bank puts them")
    parser.add_argument("--tokens", type=int, default=256, help="of each attempt")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--their-rows", type=int, default=8, help="attempts that TRL passes over at once in training")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(model_folder(chosen.model))
    shape = make_shape(tokenizer, references=chosen.references, tokens=chosen.tokens)
    ours = Ours(chosen.model, shape)
    with tempfile.TemporaryDirectory() as out:
        trainer = their_trainer(chosen.model, shape, tokenizer, steps=chosen.steps, rows=chosen.their_rows, out=out)
        trainer.add_callback(Turns(ours, trainer.watch))
        trainer.train()
    report = json.dumps(figures(shape, ours.watch.steps, trainer.watch.steps), indent=1)
    print(report)  # noqa: T201
    if chosen.json:
        chosen.json.write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
