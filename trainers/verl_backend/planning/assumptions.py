"""What a plan assumes where nothing has been measured yet: each number stands beside the plan and can be set."""

from collections.abc import Iterable
from typing import Annotated

import yaml  # type: ignore[import-untyped]
from pydantic import Field, ValidationError

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory_json import first_problem

Amount = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Assumptions(Frozen):
    """Of one H100 each, of one attempt each, of one call each. None of it is measured; put in what you measure.

    The judge's times are such that proposing for all questions and then scoring all attempts, one after the other
    as the paper does it, takes the paper's five minutes.
    """

    gpu_gib: Positive = 79.6
    """Memory of a GPU: an H100 of 80 GB."""
    gpu_teraflops: Positive = 989.0
    """Of bfloat16, dense."""
    utilisation: Share = 0.3
    """Share of those that training reaches."""
    reserve_gib: Amount = 5.0
    """On each GPU: CUDA, NCCL, what a sleeping engine keeps, fragments."""
    engine_overhead_gib: Amount = 3.0
    """Of the sampling engine beside weights and cache: graphs and activations."""
    logit_bytes: Amount = 10.0
    """For each token and word of the vocabulary: logits in 16 bits, in 32 bits, and their gradient."""
    engine_tokens: Positive = 2_000.0
    """Tokens a second that a GPU samples in all, with a model of 8 billion parameters."""
    sequence_tokens: Positive = 80.0
    """Tokens a second of one sequence, at most."""
    start_tokens: Amount = 3_000.0
    """Of an attempt's prompt: instructions, question, references."""
    written_tokens: Positive = 6_500.0
    """By the policy in an attempt."""
    searches: Amount = 6.0
    """Tool calls of an attempt."""
    observed_tokens: Amount = 800.0
    """Of one tool's answer."""
    reflection_tokens: Amount = 500.0
    """Of one candidate."""
    google_share: Share = 0.7
    """Of the calls; the rest are snippet_search, which costs nothing."""
    tool_seconds: Amount = 4.0
    propose_seconds: Amount = 70.0
    score_seconds: Amount = 35.0
    reflect_seconds: Amount = 20.0
    """Of the judge, for the candidates of one question."""
    spread: Amount = 0.5
    """Of lengths and times: the standard deviation of their logarithm; 0 makes all alike."""
    swap_seconds: Amount = 30.0
    """An update's weights and moments into the GPU and out again, and new weights to the engines."""
    rubrics: Amount = 12.0
    """That an attempt is marked by."""
    thought_tokens: Amount = 500.0
    """Hidden thoughts of one call to the judge, billed as output."""
    retries: Amount = 0.03
    """Calls to the judge that are made once more."""
    cached: Share = 0.0
    """Of the searches that the tool cache answers: questions come back, searches less often."""
    gpu_hour_dollars: Amount = 2.5

    @property
    def sequence(self) -> float:
        """Tokens of an attempt in all."""
        return self.start_tokens + self.written_tokens + self.searches * self.observed_tokens


def read_assumptions(changes: Iterable[str]) -> Assumptions:
    """The assumptions with KEY=VALUE changes.

    Raises:
        ConfigError: there is no such assumption, or its value is out of range.
    """
    given: dict[str, object] = {}
    for change in changes:
        key, sign, text = change.partition("=")
        if not sign or key not in Assumptions.model_fields:
            names = ", ".join(Assumptions.model_fields)
            raise ConfigError(f"{change!r} sets no assumption; write KEY=VALUE with one of {names}.")
        given[key] = yaml.safe_load(text)
    try:
        return Assumptions.model_validate(given, strict=False)
    except ValidationError as cause:
        raise ConfigError(f"an assumption is refused {first_problem(cause)}") from cause
