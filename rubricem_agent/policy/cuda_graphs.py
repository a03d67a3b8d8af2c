"""Passes of a decoder over few tokens as CUDA graphs: hundreds of small kernels cost one launch.

A graph is captured for each shape of a pass, so passes are padded to few shapes. It reads weights and cache where they
lay when it was captured: it is captured again once either has moved.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from rubricem_agent.policy.decoder import Feed, RowStep, StepShape

WIDEST = 16
"""The most new tokens of a row: a wider pass has work enough to hide its launches."""
LENGTH_STEP = 512
"""The cached positions that a pass sees are rounded up to a multiple of it."""


class CapturedPass(Protocol):
    """A pass of one shape, ready to be run with other inputs."""

    def replay(self, inputs: Sequence[Tensor]) -> Tensor:
        """The logits of every token; the next replay overwrites them."""


class GraphPass:
    """A pass as a CUDA graph."""

    def __init__(self, run: Callable[[RowStep], Tensor], step: RowStep) -> None:
        """`step` is run twice, which writes the same into the cache each time."""
        self._step = step
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run(step)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        # Another thread may train meanwhile.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._logits = run(step)

    def replay(self, inputs: Sequence[Tensor]) -> Tensor:
        for mine, given in zip(inputs_of(self._step), inputs, strict=True):
            mine.copy_(given)
        self._graph.replay()
        return self._logits


def inputs_of(step: RowStep) -> tuple[Tensor, Tensor, Tensor]:
    """What differs between passes of one shape whose every token's logits are wanted."""
    return step.ids, step.positions, step.mask


class GraphedPasses:
    """The passes of one decoder, by shape."""

    def __init__(
        self,
        model: nn.Module,
        run: Callable[[RowStep], Tensor],
        capture: Callable[[Callable[[RowStep], Tensor], RowStep], CapturedPass] = GraphPass,
    ) -> None:
        self._model = model
        self._run = run
        self._capture = capture
        self._captured: dict[StepShape, CapturedPass] = {}
        self._weights: tuple[int, ...] = ()

    def forget(self) -> None:
        """The cache has moved: capture every pass again."""
        self._captured.clear()

    def logits(self, feeds: Sequence[Feed], step: RowStep, *, shape: StepShape) -> Tensor:
        """The logits that are wanted, in the order of the feeds; `step` has these feeds in a padded shape."""
        weights = tuple(parameter.data_ptr() for parameter in self._model.parameters())
        if weights != self._weights:
            self.forget()
            self._weights = weights
        step = every_token(step)
        if shape not in self._captured:
            self._captured[shape] = self._capture(self._run, step)
        logits = self._captured[shape].replay(inputs_of(step))
        wanted = [feed.row * shape.width + at for feed in feeds for at in range(len(feed.ids))[-feed.wanted :]]
        return logits[torch.tensor(wanted).to(logits.device)]


def padded_shape(feeds: Sequence[Feed], *, held: int, capacity: int) -> StepShape:
    """The rows from the first one on, to a power of two, and a rounded number of positions."""
    least = StepShape.of(feeds, range(1))
    rows = min(held, 1 << feeds[-1].row.bit_length())
    return least._replace(cached=range(rows), length=min(capacity, -(-least.length // LENGTH_STEP) * LENGTH_STEP))


def every_token(step: RowStep) -> RowStep:
    """The same step with the logits of each of its tokens, row by row."""
    rows, width = step.ids.shape
    numbers = torch.arange(rows * width, device=step.ids.device)
    return step._replace(rows=numbers // width, columns=numbers % width)
