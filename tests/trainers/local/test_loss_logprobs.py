"""The tiled head against the plain one and against finite differences, whatever the tile."""

import pytest
import torch
from torch import Tensor, nn

from trainers.local.learner import LossSettings, PolicyTokens, policy_loss
from trainers.local.packed import token_logprobs

TOKENS, WIDTH, VOCABULARY = 7, 5, 11
TILES = [1, 12, 30, 10**6]


class Inputs:
    def __init__(self, dtype: torch.dtype = torch.float64, device: str = "cpu") -> None:
        draw = torch.Generator().manual_seed(0)
        self.hidden = self._leaf(torch.randn(TOKENS, WIDTH, generator=draw, dtype=torch.float64), dtype, device)
        self.head = self._leaf(torch.randn(VOCABULARY, WIDTH, generator=draw, dtype=torch.float64), dtype, device)
        self.targets = torch.randint(0, VOCABULARY, (TOKENS,), generator=draw).to(device)
        self.temperature = torch.linspace(0.5, 1.5, TOKENS, dtype=torch.float64, device=device)

    def _leaf(self, values: Tensor, dtype: torch.dtype, device: str) -> Tensor:
        return values.to(device=device, dtype=dtype).requires_grad_()

    def tiled(self, tile_elements: int) -> tuple[Tensor, Tensor]:
        return token_logprobs(
            self.hidden, self.head, targets=self.targets, temperature=self.temperature, tile_elements=tile_elements
        )

    def plain(self) -> tuple[Tensor, Tensor]:
        logits = self.hidden.double() @ self.head.double().T / self.temperature[:, None]
        spread = logits.log_softmax(-1)
        entropy = -(spread.exp() * spread).sum(-1)
        return spread.gather(1, self.targets[:, None])[:, 0], entropy.detach()


@pytest.mark.parametrize("tile", TILES)
def test_it_equals_the_plain_head_in_value_entropy_and_gradients(tile):
    ours, plain = Inputs(), Inputs()
    upstream = torch.linspace(-1, 1, TOKENS, dtype=torch.float64)
    got, want = ours.tiled(tile), plain.plain()
    torch.testing.assert_close(got, want)
    (got[0] @ upstream).backward()
    (want[0] @ upstream).backward()
    torch.testing.assert_close(ours.hidden.grad, plain.hidden.grad)
    torch.testing.assert_close(ours.head.grad, plain.head.grad)


@pytest.mark.parametrize("tile", TILES)
def test_its_gradient_is_that_of_finite_differences(tile):
    inputs = Inputs()

    def logprobs(hidden: Tensor, head: Tensor) -> Tensor:
        return token_logprobs(hidden, head, targets=inputs.targets, temperature=inputs.temperature, tile_elements=tile)[
            0
        ]

    assert torch.autograd.gradcheck(logprobs, (inputs.hidden, inputs.head))


def test_the_answer_to_equal_logits_is_the_logarithm_of_the_vocabulary():
    # no hidden state, no preference: log(1/11), and entropy log 11
    inputs = Inputs()
    logprobs, entropy = token_logprobs(
        torch.zeros(TOKENS, WIDTH), inputs.head.detach().float(), targets=inputs.targets, temperature=torch.ones(TOKENS)
    )
    torch.testing.assert_close(logprobs, torch.full((TOKENS,), 1 / 11).log())
    torch.testing.assert_close(entropy, torch.full((TOKENS,), 11.0).log())


def test_each_token_has_the_temperature_of_its_sample():
    inputs = Inputs()
    logits = inputs.hidden[2] @ inputs.head.T / inputs.temperature[2]
    assert inputs.tiled(30)[0][2].item() == pytest.approx(logits.log_softmax(-1)[inputs.targets[2]].item())


def test_the_entropy_is_reported_and_not_trained_on():
    assert not Inputs().tiled(30)[1].requires_grad


def test_a_frozen_head_gets_no_gradient_and_a_frozen_body_neither():
    for frozen, moving in (("hidden", "head"), ("head", "hidden")):
        inputs = Inputs()
        vars(inputs)[frozen].requires_grad_(False)
        inputs.tiled(30)[0].sum().backward()
        assert vars(inputs)[frozen].grad is None
        assert vars(inputs)[moving].grad.abs().sum() > 0


def test_no_tokens_are_no_logprobs():
    inputs = Inputs()
    none = slice(0, 0)
    logprobs, _ = token_logprobs(
        inputs.hidden[none], inputs.head, targets=inputs.targets[none], temperature=inputs.temperature[none]
    )
    logprobs.sum().backward()
    assert logprobs.shape == (0,)
    assert not inputs.head.grad.any()


def test_bf16_answers_in_float32_within_the_precision_of_its_operands():
    ours, plain = Inputs(torch.bfloat16), Inputs(torch.bfloat16)
    got, want = ours.tiled(30)[0], plain.plain()[0]
    got.sum().backward()
    want.sum().backward()
    assert got.dtype == torch.float32
    assert ours.head.grad.dtype == torch.bfloat16
    for ours_, plain_ in ((got, want), (ours.hidden.grad, plain.hidden.grad), (ours.head.grad, plain.head.grad)):
        assert (ours_.double() - plain_.double()).norm() / plain_.double().norm() < 1e-2


class TinyPolicy(nn.Module):
    """A policy of 120 numbers: an embedding, a running mean of what was read, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, token_ids: Tensor) -> Tensor:
        read = self.embedding(token_ids).cumsum(1) / torch.arange(1, token_ids.shape[1] + 1)[:, None]
        return torch.tanh(self.mix(read))


def step_loss(policy: TinyPolicy, settings: LossSettings, tile: int = 40) -> Tensor:
    """The whole step on made-up rollouts: two of eight tokens, sampled at two temperatures."""
    draw = torch.Generator().manual_seed(5)
    token_ids = torch.randint(0, VOCABULARY, (2, 8), generator=draw)
    count = 2 * 7
    old, reference, rollout = -torch.rand(3, count, generator=draw, dtype=torch.float64) - 2.0
    logprobs, entropy = token_logprobs(
        policy(token_ids)[:, :-1].reshape(count, WIDTH),
        policy.head.weight,
        targets=token_ids[:, 1:].reshape(count),
        temperature=torch.tensor([1.0, 0.7], dtype=torch.float64).repeat_interleave(7),
        tile_elements=tile,
    )
    advantages = torch.linspace(-1.5, 1.5, count, dtype=torch.float64)
    stages = torch.arange(count) % 4
    tokens = PolicyTokens(logprobs, old, reference, rollout, advantages, stages, entropy)
    return policy_loss(tokens, settings=settings, denominator=count)[0]


@pytest.mark.parametrize("importance_cap", [None, 1.1])
@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-sum"])
def test_the_gradient_of_a_whole_step_is_that_of_finite_differences(aggregation, importance_cap):
    torch.manual_seed(2)
    policy = TinyPolicy().double()
    settings = LossSettings(kl_coefficient=0.05, aggregation=aggregation, importance_cap=importance_cap)
    step_loss(policy, settings).backward()
    width = 1e-6
    with torch.no_grad():
        for weights in policy.parameters():
            flat, gradient = weights.view(-1), weights.grad.view(-1)
            for index in range(len(flat)):
                middle = flat[index].item()
                flat[index] = middle + width
                above = step_loss(policy, settings).item()
                flat[index] = middle - width
                below = step_loss(policy, settings).item()
                flat[index] = middle
                assert gradient[index].item() == pytest.approx((above - below) / (2 * width), abs=1e-8, rel=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_a_gpu_the_tiled_head_equals_the_plain_one():
    ours, plain = Inputs(torch.bfloat16, "cuda"), Inputs(torch.bfloat16, "cuda")
    got, _ = token_logprobs(
        ours.hidden, ours.head, targets=ours.targets, temperature=ours.temperature, tile_elements=30
    )
    got.sum().backward()
    plain.plain()[0].sum().backward()
    assert (ours.head.grad - plain.head.grad).norm() / plain.head.grad.norm() < 1e-2
