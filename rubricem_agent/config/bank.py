"""The settings of a rubric bank."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from rubricem_agent.memory.bank import RetrievalSettings
from rubricem_agent.memory.gate import GateLimits
from rubricem_agent.memory.inject import BLOCK_TOKENS
from rubricem_agent.memory.probation import ProbationSettings
from rubricem_env.domain.base import Frozen

MINILM = "minilm"
QWEN3 = "qwen3-embedding-0.6b"
HASHING = "hashing"
WITH_WEIGHTS = (MINILM, QWEN3)
"""Embedders that are models, and take time and threads."""
EMBEDDERS = (*WITH_WEIGHTS, HASHING)


class BankConfig(Frozen):
    """A rubric bank; the defaults are the paper's, except for the embedder."""

    folder: Path | None = None
    """Where the bank is stored; None keeps it in memory, for training that saves its snapshots."""
    embedder: str = MINILM
    """`minilm` comes with its package, `qwen3-embedding-0.6b` is the paper's, `hashing` needs no package."""
    embedder_path: Path | None = None
    """A folder with the weights of qwen3-embedding-0.6b; None looks in the local cache. Nothing is downloaded."""
    retrieval: RetrievalSettings = RetrievalSettings()
    gate: GateLimits = GateLimits()
    probation: ProbationSettings | None = None
    """Show a new lesson to a share of attempts until the scores say whether it helps; `{}` does so with the defaults.
    None admits it at once, as in the paper.
    """
    is_moderated: bool = False
    """New items wait in quarantine until a person approves them."""
    reference_tokens: Annotated[int, Field(ge=1)] = BLOCK_TOKENS
    """The most tokens that the reference block before a question may take."""
