"""The environment that a user steps: one question, one policy, emissions in and observations out."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from rubricem_env.domain.errors import OrderError, UsageError
from rubricem_env.domain.query import Query
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.ansi import render_ansi
from rubricem_env.env.choosing import choose_query
from rubricem_env.env.drive import take_step
from rubricem_env.env.episode import Episode
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.env.loop import LoopThread
from rubricem_env.env.parts import read_limits, read_prompt, read_queries, read_toolbox
from rubricem_env.env.scoring import RewardMode, Scorer, read_reward_mode
from rubricem_env.env.spaces import AnyText
from rubricem_env.tools.base import Toolbox

Info = dict[str, Any]


def question_prompt(query: Query) -> str:
    """The plainest prompt: the question."""
    return query.question


class DeepResearchEnv(gymnasium.Env[str, str]):
    """A deep research episode as a Gymnasium environment.

    An action is one emission of the policy: it ends with a tool call or with the answer. The observation is what the
    policy reads next: the prompt after `reset`, the tool's output after a call, a notice where the turn went wrong.
    `terminated` means that the policy answered, `truncated` that a limit ended the episode.

    `info` after `reset`: `query_key`, `answer_format`. After `step`: `turn`, `calls_used`, `calls_left`,
    `tokens_used`, `violations` (codes of this turn, joined by commas), `tool_status` (or ""), `ending` (or ""); and
    for each stage that this step pays out, `score_<stage>` (a number, or None) and `unscored_<stage>` (None, or why).
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - declared as Gymnasium asks

    def __init__(
        self,
        *,
        queries: Sequence[Query] | None = None,
        toolbox: Toolbox | None = None,
        limits: EpisodeLimits | None = None,
        reward: RewardMode | str = RewardMode.NONE,
        scorer: Scorer | None = None,
        prompt: Callable[[Query], str] = question_prompt,
        render_mode: str | None = None,
    ) -> None:
        self.queries = read_queries(queries)
        self.toolbox = read_toolbox(toolbox)
        self.limits = read_limits(limits)
        self.reward_mode = read_reward_mode(reward, scorer)
        self.scorer = scorer
        self.render_mode = render_mode
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._prompt = read_prompt(prompt)
        self._episode: Episode | None = None
        self._loop = LoopThread()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin an episode on a question drawn from `queries`.

        `options` may name it instead: {"query": Query(...)}, or {"question": "...", "answer_format": "short"}.
        """
        super().reset(seed=seed)
        query = choose_query(options or {}, self.queries, self.np_random)
        prompt = self._prompt(query)
        self._episode = Episode(query, prompt=prompt, limits=self.limits, seed=seed)
        return prompt, {"query_key": query.key, "answer_format": query.answer_format.value}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take the policy's next emission; see the class for what comes back."""
        if not isinstance(action, str):
            raise UsageError(f"the action is a {type(action).__name__}; it is the text of one emission, a str.")
        outcome = take_step(self.episode, action, toolbox=self.toolbox, mode=self.reward_mode, scorer=self.scorer)
        return self._loop.run(outcome)

    @property
    def episode(self) -> Episode:
        """The running episode.

        Raises:
            OrderError: there is none yet.
        """
        if self._episode is None:
            raise OrderError("there is no episode yet; call reset() before step() or render().")
        return self._episode

    @property
    def trajectory(self) -> Trajectory:
        """The record of the episode so far."""
        return self.episode.trajectory

    def render(self) -> str | None:
        """The episode so far, stage by stage, for a terminal; None unless render_mode is "ansi"."""
        return render_ansi(self.episode.read()) if self.render_mode == "ansi" else None

    def close(self) -> None:
        self._loop.close()
