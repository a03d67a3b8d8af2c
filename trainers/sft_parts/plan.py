"""Which samples each step takes, and how fast it learns: a function of the step alone, so that a resumed run goes on as if never stopped."""

import math
from typing import NamedTuple

import numpy as np


class Plan(NamedTuple):
    """The whole run on paper."""

    num_samples: int
    batch_size: int
    epochs: int
    seed: int
    learning_rate: float
    warmup_share: float

    @property
    def steps_per_epoch(self) -> int:
        """The last batch of an epoch may be smaller."""
        return -(-self.num_samples // self.batch_size)

    @property
    def num_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def epoch_of(self, step: int) -> int:
        """From 0; steps count from 1."""
        return (step - 1) // self.steps_per_epoch

    def batch(self, step: int) -> list[int]:
        """The indices of the samples of a step: each epoch is a permutation of its own."""
        epoch = self.epoch_of(step)
        order = np.random.default_rng([self.seed, epoch]).permutation(self.num_samples)
        start = (step - 1) % self.steps_per_epoch * self.batch_size
        return [int(index) for index in order[start : start + self.batch_size]]

    def rate(self, step: int) -> float:
        """Linear warm-up to the learning rate, then a cosine to zero at the end of the run."""
        warmup = round(self.num_steps * self.warmup_share)
        if step <= warmup:
            return self.learning_rate * step / warmup
        done = (step - warmup) / max(1, self.num_steps - warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
