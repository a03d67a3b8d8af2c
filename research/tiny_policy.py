"""Makes the tiny policy: writes traces with the almanac's expert, makes a small Qwen3, and trains it on them.

    python -m research.tiny_policy --config tiny_policy [num_worlds=4 ...]

The traces go through the pipeline of any teacher: rounds, rejection, normalisation, ChatML with loss spans.
"""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from research import tiny_pretraining
from research.almanac_traces import TraceConfig, make_samples
from research.reading_test import answer_worlds, evaluate_reading
from research.tiny_training import Course, batches, copied_share, restore, train_course
from rubricem_agent.data.chatml import ChatSample
from rubricem_agent.learn.resume_identity import refuse_other_run
from rubricem_env.domain.base import PositiveCount
from rubricem_env.scaffold.grammar import CALL_TOOL
from rubricem_env.world.names import Split
from rubricem_records.runs.run_settings import SETTINGS_FILE
from trainers.settings import make_out, read_command, run_command


class TinyConfig(TraceConfig):
    """How the tiny policy is made."""

    hidden_size: PositiveCount
    layers: PositiveCount
    heads: PositiveCount
    head_dim: PositiveCount
    intermediate_size: PositiveCount
    attention_scale: float
    """The first weight of the norms of queries and keys."""
    drills: Course
    """Reading drills alone, in fresh worlds."""
    echoes: PositiveCount
    """Of a round at the beginning of the drills."""
    round_tokens: PositiveCount
    """Of drills in a round."""
    traces: Course
    """Traces and reflections, with first turns and drills among them."""
    traces_per_round: PositiveCount
    first_turns: PositiveCount
    """A round's openings of traces, up to the first call: lists of needs are copied badly otherwise."""
    drills_per_round: PositiveCount
    save_every: PositiveCount
    """Rounds between checkpoints. The same command resumes from the last."""
    begin: Path | None = None
    """The output folder of a making whose drills are over: this one begins with their end."""
    max_tokens: PositiveCount
    """Longer samples are left out."""
    evaluation_split: Split
    """The questions of the shipped world that it is evaluated on at the end."""


ROPE_THETA = 10_000.0


def make_policy(config: TinyConfig, samples: Sequence[ChatSample]) -> Path:
    """The untrained model with its tokenizer, as transformers loads them."""
    shown = tiny_pretraining.reading_drills(
        DRILL_WORLDS, "train", np.random.default_rng([config.seed, 2, 0]), fewest=1, most=6
    )
    drills = [seen + "".join(text for text, _ in said) for seen, said in shown]
    texts = [*(message.content for sample in samples for message in sample.messages), *drills]
    tokenizer: Any = tiny_pretraining.word_tokenizer(texts, max_tokens=config.max_tokens)
    torch.manual_seed(config.seed)
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        head_dim=config.head_dim,
        max_position_embeddings=2 * config.max_tokens,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model: Any = Qwen3ForCausalLM(shape)  # type: ignore[no-untyped-call]
    begin_weights(model, tokenizer, config)
    folder = config.out / "untrained"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def begin_weights(model: Any, tokenizer: Any, config: TinyConfig) -> None:
    """Draw the first weights. Forms of a word with and without a space begin with equal embeddings.

    All embeddings share a direction, from which two heads of the first layer compute the same query and the same key at
    each position, a token apart: they look at the token before. Copying begins with it, and is learnt in a tenth of the
    steps.
    """
    for name, weight in model.named_parameters():
        if name.endswith("_proj.weight"):
            is_out = name.endswith(("o_proj.weight", "down_proj.weight"))
            weight.normal_(std=1 / math.sqrt(weight.shape[1] * (2 * config.layers if is_out else 1)))
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            weight.fill_(config.attention_scale)
    embeddings = model.get_input_embeddings().weight
    common = functional.normalize(torch.randn(config.hidden_size), dim=0)
    first_layer, half = model.model.layers[0].self_attn, config.head_dim // 2
    angles = ROPE_THETA ** (-torch.arange(half) / half)
    for projection, vector in (
        (first_layer.q_proj, torch.cat([torch.ones(half), torch.zeros(half)])),
        (first_layer.k_proj, torch.cat([angles.cos(), angles.sin()])),
    ):
        rows = projection.weight[: 2 * config.head_dim]
        rows.mul_(0.3).add_(vector.repeat(2)[:, None] * common)
    firsts: dict[str, int] = {}
    for word, token in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        first = firsts.setdefault(word.strip("Ġ"), token)
        if word.strip("Ġ"):
            embeddings[token] = embeddings[first]
    embeddings += common * embeddings.norm(dim=1).mean()


DRILL_WORLDS = 100_000
"""Worlds of drills have greater numbers, those of traces smaller ones."""
SHIPPED_SEED = 0
WORLDS_OF_A_ROUND = 10
"""At most."""
ECHOES = 0.1
"""The share of the drills that are echoes."""
SNIPPETS_OF = ((0.2, 1, 2), (0.35, 1, 4), (1.0, 2, 6))
"""Until this share of the drills: from how many to how many snippets."""


class PretrainingTexts(NamedTuple):
    """The texts of every round, each from its number alone."""

    config: TinyConfig
    tokenizer: Any
    samples: Sequence[ChatSample]

    def drills(
        self, number: int, *, fewest: int, most: int, split: Split = "train"
    ) -> Iterator[tiny_pretraining.LearntText]:
        """The drills of one world."""
        rng = np.random.default_rng([self.config.seed, 2, number])
        for shown, said in tiny_pretraining.reading_drills(DRILL_WORLDS + number, split, rng, fewest=fewest, most=most):
            yield tiny_pretraining.learnt_drill(shown, said, self.tokenizer)

    def drill_texts(self, round_: int) -> Iterator[tiny_pretraining.LearntText]:
        """As many fresh worlds as it takes: one has a batch or two of the shortest drills."""
        done = round_ / self.config.drills.rounds
        if done < ECHOES:
            rng = np.random.default_rng([self.config.seed, 5, round_])
            yield from (
                tiny_pretraining.learnt_drill(*tiny_pretraining.echo_drill(rng), self.tokenizer)
                for _ in range(self.config.echoes)
            )
            return
        _, fewest, most = next(each for each in SNIPPETS_OF if done < each[0])
        tokens = 0
        for number in range(WORLDS_OF_A_ROUND):
            for text in self.drills(1 + round_ * WORLDS_OF_A_ROUND + number, fewest=fewest, most=most):
                tokens += len(text.ids)
                yield text
            if tokens >= self.config.round_tokens:
                return

    def trace_texts(self, round_: int) -> Iterator[tiny_pretraining.LearntText]:
        """The next samples of a shuffled round trip, first turns of others, and drills."""
        config, tokenizer, samples = self
        order = np.random.default_rng([config.seed, 3]).permutation(len(samples))
        turns = np.random.default_rng([config.seed, 4, round_]).integers(len(samples), size=config.first_turns)
        start = round_ * config.traces_per_round
        for index in np.take(order, range(start, start + config.traces_per_round), mode="wrap").tolist():
            text = tiny_pretraining.learnt_sample(samples[index], tokenizer)
            if len(text.ids) <= config.max_tokens:
                yield text
        end = tokenizer.convert_tokens_to_ids(f"</{CALL_TOOL}>")
        openings = (
            tiny_pretraining.first_turn(tiny_pretraining.learnt_sample(samples[index], tokenizer), end)
            for index in turns.tolist()
        )
        yield from (opening for opening in openings if opening)
        drills = self.drills(1 + config.drills.rounds * WORLDS_OF_A_ROUND + round_, fewest=2, most=6)
        yield from islice(drills, config.drills_per_round)


def train(config: TinyConfig, samples: Sequence[ChatSample]) -> Path:
    """Drills, then traces; returns the folder of the model."""
    base = (config.begin or config.out) / "untrained"
    # What is written last.
    if not (base / "tokenizer_config.json").exists():
        make_policy(config, samples)
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    texts = PretrainingTexts(config, tokenizer, samples)
    held_out = texts.drills(0, fewest=3, most=6, split="validation")
    held_out_batches = list(batches(held_out, config.drills.batch_tokens, np.random.default_rng(0)))

    def report() -> str:
        return f"values copied {copied_share(model, held_out_batches, tiny_pretraining.VALUE):.3f}"

    learn = partial(train_course, model, save_every=config.save_every, report=report)
    if config.begin is None:
        learn(config.drills, texts.drill_texts, saved=config.out / "drills.safetensors", seed=config.seed)
    else:
        restore(config.begin / "drills.safetensors", model)
    learn(config.traces, texts.trace_texts, saved=config.out / "traces.safetensors", seed=config.seed + 1)
    folder = config.out / "model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Make, train and evaluate the tiny policy. A user error gives exit code 2 and one sentence on stderr."""

    def make() -> None:
        config = read_command(
            arguments, TinyConfig, prog="python -m research.tiny_policy", description="Make the tiny policy."
        )
        kept, settings = config.out / SETTINGS_FILE, config.model_dump_json()
        if kept.exists():
            refuse_other_run(config.out, kept.read_text(encoding="utf-8").strip(), settings)
        make_out(config.out, settings=settings)
        # One thread: the same sums in the same order.
        torch.set_num_threads(1)
        model = train(config, make_samples(config))
        made = answer_worlds(model, [SHIPPED_SEED], config.evaluation_split, temperature=0.0, system=config.system)
        text = json.dumps(evaluate_reading(made), indent=1)
        (config.out / "evaluation.json").write_text(f"{text}\n", encoding="utf-8")
        sys.stdout.write(f"{text}\n")

    return run_command("tiny_policy", make)


if __name__ == "__main__":
    sys.exit(main())
