"""A rollout of several windows weighs as one of the same tokens, and each window has the context it was drawn with."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rubricem_agent.learn.samples import Batch, Sample, pad_batch
from rubricem_agent.policy.base import Listener, Opening, TokenSegment
from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
from rubricem_env.domain.errors import ConfigError
from rubricem_env.testing.tiny_model import tiny_qwen3
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.sampling import Sampling
from rubricem_records.runs.run_log import METRICS_FILE
from tests.trainers.local.test_learner import one_likelier_token
from trainers.local.crediting import credit_step
from trainers.local.learner import ImportanceLevel, Learner, LossSettings, policy_logprobs
from trainers.local.packed import Pack, pack_samples
from trainers.local.run import make_run
from trainers.local.sampling import sample_and_judge
from trainers.local.settings import LocalConfig, with_system
from trainers.local.ssgrpo import train

LN = math.log
UNIFORM = -math.log(40)
"""What the model of these tests gives each of its 40 tokens, whatever it has read."""


def learner(model: torch.nn.Module | None = None, *, micro_batch_tokens: int = 1_000, **loss: object) -> Learner:
    return Learner(
        one_likelier_token(1.0) if model is None else model,
        learning_rate=1e-2,
        loss=LossSettings.model_validate({"kl_coefficient": 0.0, **loss}),
        max_grad_norm=100.0,
        micro_batch_tokens=micro_batch_tokens,
    )


def sample(written: int, advantage: float, gaps: list[float], rollout: int | None = None) -> Sample:
    """A prompt of two tokens, then what the policy wrote, with these gaps between its log-probability and the drawn."""
    ids = [5, 6, *range(7, 7 + written)]
    advantages = np.array([0, 0, *[advantage] * written], dtype=np.float32)
    drawn = [0.0, 0.0, *(UNIFORM - gap for gap in gaps)]
    return Sample(ids, [-1, -1, *[0] * written], advantages, drawn, 1.0, 0, rollout)


GAPS = ([LN(2)], [-LN(3), LN(2)], [LN(2)])
FOLDED = [sample(len(gaps), 1.0, list(gaps), rollout=0) for gaps in GAPS]
"""Four tokens in three windows."""
WHOLE = sample(4, 1.0, [gap for gaps in GAPS for gap in gaps], rollout=0)
"""The same in one."""
OTHER = sample(2, -1.0, [0.0, 0.0], rollout=1)


def batch(*samples: Sample) -> Batch:
    return pad_batch(samples, pad_id=0)


# The ratio is 1, so the sum of the losses is -4 + 2 = -2 over 6 tokens of 2 rollouts. With w, the weight of the first
# rollout's tokens, it is -sum(w) + 2. Sum of its r: 3 ln 2 - ln 3 = ln(8/3). Of exp(r) - r - 1, over three tokens of
# ln 2 and one of -ln 3: (3 (1 - ln 2) + (ln 3 - 2/3)) / 4 = 0.338.
@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ({"aggregation": "token-mean"}, -2 / 6),
        ({"aggregation": "seq-mean-token-sum"}, -2 / 2),
        ({"importance_cap": 10.0}, -(3 * 2 + 1 / 3 - 2) / 6),
        ({"importance_cap": 10.0, "importance_level": "sequence"}, -(4 * 8 / 3 - 2) / 6),
        ({"importance_cap": 2.5, "importance_level": "sequence"}, -(4 * 2.5 - 2) / 6),
        ({"rejection": 0.33}, 2 / 6),
        ({"rejection": 0.34}, -2 / 6),
    ],
)
@pytest.mark.parametrize("micro_batch_tokens", [3, 1_000])
def test_a_rollout_of_three_windows_weighs_as_one_of_the_same_tokens(loss, expected, micro_batch_tokens):
    trained = learner(micro_batch_tokens=micro_batch_tokens, **loss)
    for rows in ([WHOLE, OTHER], [*FOLDED, OTHER]):
        total, _, _ = trained.accumulate_gradient(batch(*rows))
        assert total == pytest.approx(expected, rel=1e-5)
    parameters = [weights for weights in trained.trained if weights.grad is not None]
    assert parameters


def test_threads_change_no_bit_of_a_folded_step():
    torch.manual_seed(0)
    states = tiny_qwen3(40).state_dict()
    loss = {"importance_cap": 2.0, "importance_level": "sequence", "rejection": 5.0}
    trained = []
    for threads in (1, 2):
        model = tiny_qwen3(40)
        model.load_state_dict(states)
        trained.append(
            Learner(
                model,
                learning_rate=1e-2,
                loss=LossSettings.model_validate(loss),
                max_grad_norm=1.0,
                micro_batch_tokens=4,
                threads=threads,
            )
        )
    rows = batch(*FOLDED, OTHER)
    assert trained[0].update(rows) == trained[1].update(rows)
    for left, right in zip(trained[0].policy.parameters(), trained[1].policy.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_where_nothing_is_folded_the_gradient_is_that_of_rows_without_rollouts_to_the_bit(level: ImportanceLevel):
    torch.manual_seed(0)
    trained = learner(tiny_qwen3(40), importance_cap=2.0, importance_level=level, rejection=1.0)
    gradients = []
    for rows in ([WHOLE, OTHER], [WHOLE._replace(rollout=None), OTHER._replace(rollout=None)]):
        trained.accumulate_gradient(batch(*rows))
        gradients.append([weights.grad.clone() for weights in trained.trained if weights.grad is not None])
    assert all(torch.equal(left, right) for left, right in zip(*gradients, strict=True))


async def drawn_window(policy: LocalPolicy, user: str, *, seed: int) -> tuple[TokenSegment, ...]:
    """A prompt, and two turns with an observation between them."""
    conversation = policy.open(Opening("", user), sampling=Sampling(temperature=0.8), seed=seed)
    await conversation.emit(max_tokens=12, listener=Listener())
    conversation.observe(" <tool_result> a river </tool_result> ")
    await conversation.emit(max_tokens=12, listener=Listener())
    conversation.close()
    return conversation.pieces


@pytest.mark.parametrize("micro_batch_tokens", [1, 10_000])
async def test_log_probabilities_of_every_window_are_recomputed_as_they_were_drawn(policy_folder, micro_batch_tokens):
    policy = LocalPolicy(load_model(policy_folder), load_tokenizer(policy_folder), rows=1, max_length=2_000)
    users = ("How wide is the river Tall Fox?", "How wide is it? Folded: a river.", "How wide? Folded: two rivers.")
    windows = [await drawn_window(policy, user, seed=seed) for seed, user in enumerate(users)]
    pieces = [piece for window in windows for piece in window]
    sizes = [sum(len(piece.ids) for piece in window) for window in windows]
    tokens = RolloutTokens(
        ids=tuple(token_id for piece in pieces for token_id in piece.ids),
        stage_ids=tuple(0 if piece.is_policy else -1 for piece in pieces for _ in piece.ids),
        logprobs=tuple(
            logprob for piece in pieces for logprob in (piece.logprobs if piece.is_policy else [0.0] * len(piece.ids))
        ),
        prompt_length=len(pieces[0].ids),
        window_starts=(0, sizes[0], sizes[0] + sizes[1]),
    )
    rows = [
        Sample(
            tokens.ids[window],
            tokens.stage_ids[window],
            np.zeros(len(tokens.ids[window])),
            tokens.logprobs[window],
            temperature=0.8,
            policy_version=0,
            rollout=0,
        )
        for window in tokens.written_windows
    ]
    trained = learner(load_model(policy_folder), micro_batch_tokens=micro_batch_tokens)
    report = trained.update(batch(*rows))
    assert len(rows) == 3
    assert report.tokens == int(tokens.policy_mask.sum()) > 3
    assert report.sampling_gap < 1e-5


def almanac(out: Path, **changes: object) -> LocalConfig:
    """A run of the shipped policy, whose episodes have three windows or four."""
    fields: dict[str, object] = {
        "policy": "tiny",
        "out": out,
        "steps": 2,
        "questions_per_step": 1,
        "group_size": 2,
        "window": 1,
        "limits": {"max_tokens": 1_400},
        "context": {"fold_at": 420, "fold_to": 320, "keep": 1},
        "bank": {"reference_tokens": 200},
        "reflection": {"num_candidates": 2, "total_tokens": 2_400, "new_tokens": 64, "system": "Reflect."},
        "knobs": {"noise": 0.3},
        "held_out_limit": 1,
        "checkpoint_every": 1,
        "evaluate_every": 9,
    }
    return with_system(LocalConfig.model_validate({**fields, **changes}, strict=False))


def lines(config: LocalConfig) -> list[dict[str, Any]]:
    """The steps of a run, without what a clock measured."""
    asyncio.run(train(make_run(config)))
    rows = [json.loads(line) for line in (config.out / METRICS_FILE).read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows if "encounter" in row]


def test_every_token_of_a_folded_attempt_is_recomputed_as_it_was_drawn(tmp_path):
    run = make_run(almanac(tmp_path, meta_policy=False))
    judged = asyncio.run(sample_and_judge(run, next(run.curriculum)))
    tokens = [rollout.tokens for group in judged.rollouts for rollout in group]
    assert all(len(of_one.windows) >= 2 for of_one in tokens)
    samples = credit_step(run, judged).samples
    written = sum(int(of_one.policy_mask.sum()) for of_one in tokens)
    for most in (1, 4_096):
        gaps = torch.cat([gaps_of(run.learner, pack) for pack in pack_samples(batch(*samples), max_tokens=most)])
        # Each token that was drawn stands in one window, and no other token is trained on.
        assert len(gaps) == written
        assert float(gaps.abs().max()) < 1e-4


def gaps_of(trained: Learner, pack: Pack) -> torch.Tensor:
    with torch.no_grad():
        new, _ = policy_logprobs(trained.policy, pack)
    return new - torch.as_tensor(pack.part.rollout_logprobs[pack.part.policy_positions()])


@pytest.mark.no_cover
def test_a_folded_run_that_is_stopped_and_resumed_has_the_same_numbers_and_weights(tmp_path):
    whole, parts = almanac(tmp_path / "whole"), almanac(tmp_path / "parts")
    rows = lines(whole)
    assert all(row["rollout_stats"]["windows"] > 1 and 0 < row["rollout_stats"]["prompts_again"] < 1 for row in rows)
    assert [row["ages"] for row in rows] == [{"0": row["trained_rollouts"]} for row in rows]
    lines(parts.model_copy(update={"steps": 1}))
    assert lines(parts) == rows
    assert weights_of(whole) == weights_of(parts)


def weights_of(config: LocalConfig) -> bytes:
    return (config.out / "model" / "model.safetensors").read_bytes()


@pytest.mark.no_cover
def test_a_context_in_which_nothing_is_folded_changes_no_bit_of_a_run(tmp_path):
    plain = almanac(tmp_path / "plain", context={}, steps=1)
    bounded = almanac(tmp_path / "bounded", context={"fold_at": 2_000, "fold_to": 1_000}, steps=1)
    rows = [lines(plain), lines(bounded)]
    assert rows[0] == rows[1]
    assert "windows" not in rows[0][0]["rollout_stats"]
    assert weights_of(plain) == weights_of(bounded)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"context": {"fold_at": 2_300, "fold_to": 400}}, "a window may have 2812 tokens .context.fold_at and a turn"),
        ({"context": {"fold_at": 420, "fold_to": 220}}, "the prompt has .* tokens and context.fold_to is 220"),
    ],
)
def test_windows_that_do_not_fit_are_refused_before_the_first_step(tmp_path, changes, sentence):
    limits = {"max_tokens": 9_000}
    with pytest.raises(ConfigError, match=sentence):
        make_run(almanac(tmp_path, limits=limits, **changes))
    make_run(almanac(tmp_path, limits=limits))
