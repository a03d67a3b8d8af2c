"""The environment that a user steps: one question, one policy, emissions in and observations out."""

from collections.abc import Sequence
from typing import Any

import gymnasium

from rubricem_env.concurrency import LoopThread
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Query, Trajectory
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.env.render import render_ansi
from rubricem_env.env.reset_options import choose_query
from rubricem_env.env.rewards import RewardMode, Scorer
from rubricem_env.env.spec import Prompt, kind_of, make_env_spec, question_prompt
from rubricem_env.env.step import take_step
from rubricem_env.env.text_space import AnyText
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.render import TokenCount, estimate_tokens

Info = dict[str, Any]


class DeepResearchEnv(gymnasium.Env[str, str]):
    """A deep research episode as a Gymnasium environment.

    An action is one emission of the policy: it ends with a tool call or with the answer. The observation is what the
    policy reads next: the prompt after `reset`, the tool's output after a call, a notice after an invalid turn.
    `terminated` means that the policy answered, `truncated` that a limit ended the episode.

    `info` after `reset`: `query_key`, `answer_format`. After `step`: `turn`, `calls_used`, `calls_left`,
    `tokens_used`, `violations` (codes of this emission, joined by commas), `episode_violations` (those of all turns so
    far and of their order; after the last step those of the whole record, citations included), `tool_status` (or ""),
    `ending` (or ""); and for each stage that this step pays, `score_<stage>` (a number, or None) and `unscored_<stage>`
    (None, or the reason why there is no score).
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - declared as Gymnasium asks

    def __init__(
        self,
        *,
        queries: Sequence[Query] | None = None,
        toolbox: Toolbox | None = None,
        limits: EpisodeLimits | None = None,
        reward: RewardMode = "none",
        scorer: Scorer | None = None,
        prompt: Prompt = question_prompt,
        count_tokens: TokenCount = estimate_tokens,
        render_mode: str | None = None,
    ) -> None:
        self.env_spec = make_env_spec(
            queries=queries,
            toolbox=toolbox,
            limits=limits,
            reward=reward,
            scorer=scorer,
            prompt=prompt,
            count_tokens=count_tokens,
        )
        self.render_mode = render_mode
        self.observation_space = self.action_space = AnyText()
        self._episode: Episode | None = None
        self._loop = LoopThread()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin an episode on a question drawn from `queries`.

        `options` may name it instead: {"query": Query(...)}, or {"question": "...", "answer_format": "short"}.
        """
        super().reset(seed=seed)
        query = choose_query(options or {}, self.env_spec.queries, self.np_random)
        prompt = self.env_spec.prompt(query)
        self._episode = self.env_spec.open_episode(query, prompt, seed=seed)
        return prompt, {"query_key": query.key, "answer_format": query.answer_format.value}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take the policy's next emission; the class describes the result."""
        if not isinstance(action, str):
            raise UsageError(f"the action is {kind_of(action)}; it must be the text of one emission, a str.")
        env_spec = self.env_spec
        step = take_step(self.episode, action, toolbox=env_spec.toolbox, mode=env_spec.reward, scorer=env_spec.scorer)
        return self._loop.run(step)

    @property
    def episode(self) -> Episode:
        """The running episode.

        Raises:
            UsageError: there is none yet.
        """
        if self._episode is None:
            raise UsageError("there is no episode yet; call reset() before step() or render().")
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
