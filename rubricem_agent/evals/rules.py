"""What each mode pins for each benchmark, as a table (benchmarks.md has the sources)."""

from collections.abc import Mapping
from types import MappingProxyType

from rubricem_agent.evals.modes import Citations, Extraction, Mode, Rules, Sampling
from rubricem_agent.evals.researchqa import DRTULU_BATCH, OFFICIAL_BATCH
from rubricem_env.domain.errors import ConfigError

GPT = "gpt-4.1-2025-04-14"
GPT_MINI = "gpt-4.1-mini-2025-04-14"
GEMINI_PRO = "gemini-2.5-pro-preview-06-05"
GEMINI_FLASH = "gemini-2.5-flash"
LONG_REPLY = 32_768

OFFICIAL: Mapping[str, Rules] = MappingProxyType(
    {
        # Officially asked without limit; ten tries end a judge that never gives a verdict.
        "healthbench": Rules(
            mode=Mode.OFFICIAL,
            judge=GPT,
            temperature=0.5,
            tries=10,
            clips_mean=True,
            sampling=Sampling.SIMPLE_EVALS,
        ),
        "researchqa": Rules(
            mode=Mode.OFFICIAL, judge=GPT_MINI, batch_size=OFFICIAL_BATCH, citations=Citations.NUMBERED
        ),
        "drb": Rules(
            mode=Mode.OFFICIAL,
            judge=GEMINI_PRO,
            tries=10,
            max_output_tokens=LONG_REPLY,
            citations=Citations.NUMBERED,
        ),
        "researchrubrics": Rules(
            mode=Mode.OFFICIAL, judge=GEMINI_PRO, max_output_tokens=8192, citations=Citations.NUMBERED
        ),
        "simpleqa": Rules(mode=Mode.OFFICIAL, judge=GPT, temperature=0.5, tries=1, sampling=Sampling.SIMPLE_EVALS),
        "twowiki": Rules(mode=Mode.OFFICIAL, judge=""),
        "webwalkerqa": Rules(mode=Mode.OFFICIAL, judge="gpt-4", tries=1),
        "deepsearchqa": Rules(mode=Mode.OFFICIAL, judge=GEMINI_FLASH, tries=1, max_output_tokens=8192),
        "almanac": Rules(mode=Mode.OFFICIAL, judge=""),
    }
)

_PREDECESSOR = {
    "mode": Mode.DRTULU,
    "temperature": 0.0,
    "extraction": Extraction.PREDECESSOR,
    "citations": Citations.KEPT,
    "sampling": Sampling.DRTULU,
    "clips_mean": False,
}

DRTULU: Mapping[str, Rules] = MappingProxyType(
    {
        "healthbench": OFFICIAL["healthbench"].model_copy(update={**_PREDECESSOR, "max_output_tokens": 1000}),
        "researchqa": OFFICIAL["researchqa"].model_copy(update={**_PREDECESSOR, "batch_size": DRTULU_BATCH}),
        # The official scorer unchanged, after cite tags became numbers.
        "drb": OFFICIAL["drb"].model_copy(update={**_PREDECESSOR, "citations": Citations.NUMBERED}),
        "simpleqa": OFFICIAL["simpleqa"].model_copy(update=_PREDECESSOR),
        "twowiki": Rules(mode=Mode.DRTULU, judge=GPT, tries=1).model_copy(update=_PREDECESSOR),
        "webwalkerqa": Rules(mode=Mode.DRTULU, judge=GPT, tries=1).model_copy(update=_PREDECESSOR),
    }
)
"""The predecessor has no ResearchRubrics and no DeepSearchQA."""


def rules_for(benchmark: str, mode: Mode) -> Rules:
    """The rules of a mode.

    Raises:
        ConfigError: the benchmark is not known, or has no such mode.
    """
    if benchmark not in OFFICIAL:
        raise ConfigError(f"there is no benchmark {benchmark!r}; there are {', '.join(OFFICIAL)}.")
    if mode is Mode.DRTULU and benchmark not in DRTULU:
        raise ConfigError(
            f"the predecessor did not run {benchmark}, so that it has no mode drtulu. Use --mode official or strict."
        )
    if mode is Mode.DRTULU:
        return DRTULU[benchmark]
    official = OFFICIAL[benchmark]
    return official if mode is Mode.OFFICIAL else official.model_copy(update={"mode": Mode.STRICT})
