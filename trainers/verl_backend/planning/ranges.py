"""How far each assumption of a plan can be off, and where its value is from."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rubricem_env.domain.stage_set import StageSet

from .run_shape import Assumptions


class Range(NamedTuple):
    """The ends between which a number is expected."""

    cheap: float
    dear: float
    source: str


_RUBRICS_OF_DATA = 2
"""The rubrics of the data that an attempt is scored by, beside those that the judge keeps."""
_HARDWARE = "data sheet"
_GUESS = "guess"
_PAPER = "set so that judging in lockstep takes the paper's five minutes; cheap: guess"

RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "written_tokens": Range(5_000, 11_400, "guess; dear: our longest attempts, 19,400 less ten answers of tools"),
        "searches": Range(5, 10, "guess; dear: the limit of the 8B files, which our longest attempts reach"),
        "tool_seconds": Range(2, 6, _GUESS),
        "reflection_tokens": Range(300, 1_000, _GUESS),
        "propose_seconds": Range(20, 70, _PAPER),
        "score_seconds": Range(10, 35, _PAPER),
        "reflect_seconds": Range(10, 30, _GUESS),
        "spread": Range(0.3, 0.7, _GUESS),
        "swap_seconds": Range(15, 60, _GUESS),
        "gpu_gib": Range(79.6, 79.6, _HARDWARE),
        "reserve_gib": Range(5, 5, _GUESS),
        "engine_overhead_gib": Range(3, 3, _GUESS),
        "train_teraflops": Range(396, 198, "0.3 of an H100's 989; ends 0.4 and 0.2: guess"),
        "engine_tokens": Range(3_000, 1_500, _GUESS),
        "sequence_tokens": Range(100, 57, "guess; dear: bandwidth of an H100 with 24 sequences of 12,000 tokens"),
        "host_gib": Range(50, 12, "guess; cheap: PCIe 5 by its data sheet"),
        "node_gib": Range(350, 200, "guess, below the 419 of NVLink's data sheet"),
        "network_gib": Range(45, 30, "a card of 400 Gb/s carries 46.6 by its data sheet"),
        "nics": Range(8, 1, "cheap: a node of H100s has eight as a rule; dear: NCCL finds one"),
        "packing": Range(0.95, 0.8, "veRL packed 32 rows of 14,300 tokens into 20 micro-batches: 1.6 of 1.86"),
        "logit_bytes": Range(6, 10, "16 and 32 bits and a gradient; cheap: flash-attn's loss, in place"),
        "start_tokens": Range(2_000, 4_000, "our prompts; references and questions differ"),
        "observed_tokens": Range(600, 1_000, _GUESS),
        "google_share": Range(0.5, 0.8, _GUESS),
        "cached": Range(0.5, 0, "guess; every question is met nine times"),
        "rubrics": Range(10, 12, "caps of the 8B files and rubrics of the data"),
        "thought_tokens": Range(200, 1_000, _GUESS),
        "judge_read_tokens": Range(9_000, 4_000, _GUESS),
        "judge_written_tokens": Range(2_000, 1_000, _GUESS),
        "longest_attempt": Range(19_400, 19_400, "measured by this project: ten calls"),
        "gpu_hour_dollars": Range(2, 4, "offers of H100s by the hour differ by more"),
    }
)
"""By the assumption's name. None was measured in a run on GPUs."""


def stage_set_assumptions(stage_set: StageSet) -> dict[str, float]:
    """What a stage set says itself of an attempt, where it differs from the defaults: its rubrics and searches."""
    plain = Assumptions()
    said = {
        "rubrics": float(sum(stage_set.caps.values()) + _RUBRICS_OF_DATA),
        "searches": plain.searches if stage_set.scaffold.calls_tools else 0.0,
    }
    return {name: value for name, value in said.items() if value != getattr(plain, name)}


def at_ends(assumed: Assumptions, given: Mapping[str, object]) -> tuple[Assumptions, Assumptions]:
    """All assumptions at their cheap ends, and all at their dear ones; those that a user has given stay."""
    free = {name: ends for name, ends in RANGES.items() if name not in given}
    return (
        assumed.model_copy(update={name: float(ends.cheap) for name, ends in free.items()}),
        assumed.model_copy(update={name: float(ends.dear) for name, ends in free.items()}),
    )
