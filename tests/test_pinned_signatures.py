"""Signatures that third parties rely on: a change here is a change of the public interface and belongs in the changelog."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PINNED = {
    "rubricem_env/judge/base.py:Judge.propose": ("(self, contrast: Contrast) -> Proposal"),
    "rubricem_env/judge/base.py:Judge.score": ("(self, request: ScoringRequest) -> ScoringResult"),
    "rubricem_agent/policy/base.py:Policy.open": (
        "(self, opening: Opening, *, sampling: Sampling, seed: int) -> Conversation"
    ),
    "rubricem_agent/policy/base.py:Conversation.emit": ("(self, *, max_tokens: int, listener: Listener) -> Emission"),
    "rubricem_agent/policy/base.py:Conversation.observe": ("(self, text: str) -> None"),
    "rubricem_env/tools/base.py:Tool.call": ("(self, call: ToolCall, /) -> ToolResult"),
    "rubricem_env/tools/base.py:Toolbox.call": ("(self, call: ToolCall) -> ToolResult"),
    "rubricem_agent/evals/grading.py:Benchmark": (
        "name: str, title: str, answer_format: AnswerFormat, load: Callable[..., Dataset], grader: Callable[[Rules], Grader], official: Rules, drtulu: Rules | None = None, fact_grader: Callable[[Rules], Grader] | None = None, units: Mapping[str, Mapping[str, Unit]] = field(default_factory=dict), is_long: bool = False, hub: str = '', guidance: str = '', question: Callable[[Example, Grader], str] | None = None, drtulu_ids: str = '', ids: str = 'row numbers from 0'"
    ),
    "rubricem_agent/learn/credit.py:assign_credit": (
        "(scores: npt.ArrayLike, *, groups: Sequence[int] | Integers | None=None, valid: Sequence[bool] | Bools | None=None, matrix: npt.ArrayLike=PAPER_MATRIX, mode: CreditMode='stages', scored: npt.ArrayLike | None=None, tokens: npt.ArrayLike | None=None, gains: npt.ArrayLike | None=None) -> Credit"
    ),
    "rubricem_agent/learn/credit.py:spread_to_tokens": (
        "(advantages: npt.ArrayLike, stage_ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]"
    ),
    "rubricem_env/env/episode.py:Episode.emit": ("(self, text: str, *, thought: str='') -> Reply"),
    "rubricem_env/env/episode.py:Episode.observe": ("(self, result: ToolResult) -> Continue | Finished"),
    "rubricem_env/env/research_env.py:DeepResearchEnv.__init__": (
        "(self, *, queries: Sequence[Query] | None=None, toolbox: Toolbox | None=None, limits: EpisodeLimits | None=None, reward: RewardMode='none', scorer: Scorer | None=None, prompt: Prompt=question_prompt, render_mode: str | None=None) -> None"
    ),
    "rubricem_env/env/research_env.py:make_setup": (
        "(*, queries: Sequence[Query] | None=None, toolbox: Toolbox | None=None, limits: EpisodeLimits | None=None, reward: RewardMode='none', scorer: Scorer | None=None, prompt: Prompt=question_prompt, system: str='') -> Setup"
    ),
    "rubricem_env/adapters/session.py:offline_setup": (
        "(*, queries: Sequence[Query] | None=None, reward: RewardMode='answer', group_size: int=1, patience: float=600.0, prompt: Prompt=question_prompt, system: str='') -> Setup"
    ),
    "rubricem_env/adapters/session.py:offline_scorer": ("(queries: Sequence[Query] | None=None) -> GroupScorer"),
    "rubricem_env/adapters/session.py:EpisodeSession.step": ("(self, text: str) -> StepOutcome"),
    "rubricem_env/adapters/verifiers.py:research_plugin": (
        "(setup: Setup) -> tuple[type[ResearchTaskset], type[ResearchHarness]]"
    ),
    "rubricem_env/adapters/openenv.py:research_app": (
        "(setup: Setup, *, max_sessions: int=256, session_timeout: float=1800.0, token: str | None=None) -> Asgi"
    ),
    "rubricem_agent/adapters/trl.py:TrlSpec.__init__": (
        "(self, *, play: Play, scorer: Scorer, advantages: Callable[..., npt.NDArray[np.float32]] | None=None, queries: Sequence[Query] | None=None) -> None"
    ),
    "rubricem_agent/adapters/trl.py:research_spec": (
        "(*, queries: Sequence[Query] | None=None, toolbox: Toolbox | None=None, scorer: Scorer | None=None, prompt: AgentPrompt | None=None, limits: EpisodeLimits | None=None, max_turn_tokens: int=2048, rows: int=16, credit: CreditSettings | None=None) -> TrlSpec"
    ),
    "rubricem_agent/adapters/credit.py:stage_advantages": (
        "(judgements: Sequence[Judgement], *, groups: Sequence[int], valid: Sequence[bool], stage_ids: npt.NDArray[np.int8], settings: CreditSettings | None=None) -> npt.NDArray[np.float32]"
    ),
    "rubricem_agent/adapters/credit.py:group_advantages": (
        "(attempts: Sequence[Rollout], judgements: Sequence[Judgement], *, settings: CreditSettings | None=None) -> list[list[float]]"
    ),
}


def signature(place: str) -> str:
    """Of a function, or the fields of a class; read from the source, because some modules need other libraries."""
    path, names = place.split(":")
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for name in names.split("."):
        node = next(node for node in body if getattr(node, "name", None) == name)
        body = node.body
    if isinstance(node, ast.ClassDef):
        return ", ".join(ast.unparse(field) for field in node.body if isinstance(field, ast.AnnAssign))
    return f"({ast.unparse(node.args)})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


@pytest.mark.parametrize("place", PINNED)
def test_a_signature_that_third_parties_rely_on_is_unchanged(place):
    assert signature(place) == PINNED[place]
