"""The environment that a user steps: one question, one policy, emissions in and observations out."""

from collections.abc import Sequence
from typing import Any

import gymnasium

from rubricem_env.concurrency import LoopThread
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_env.domain.trajectory import Ending, Query, Trajectory
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.env.render import render_ansi
from rubricem_env.env.reset_options import choose_query
from rubricem_env.env.rewards import RewardMode, Scorer
from rubricem_env.env.spec import Prompt, check_render_mode, kind_of, make_env_spec, question_prompt
from rubricem_env.env.step import cut_short, reset_info, take_step
from rubricem_env.env.text_space import AnyText
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.render import TokenCount, estimate_tokens

Info = dict[str, Any]


class DeepResearchEnv(gymnasium.Env[str, str]):
    """A deep research episode as a Gymnasium environment; with another stage set, an episode of another task.

    An action is one emission of the policy: it ends with a tool call or with the answer. The observation is what the
    policy reads next: the prompt after `reset`, the tool's output after a call, a notice after an invalid turn.
    `terminated` means that the policy answered, `truncated` that a limit ended the episode.

    `info` after `reset`: `query_key`, `answer_format`. After `step`: `turn`, `calls_used`, `calls_left`,
    `tokens_used`, `violations` (codes of this emission, joined by commas), `episode_violations` (those of all turns so
    far and of their order; after the last step those of the whole record, citations included), `tool_status` (or ""),
    `ending` (or ""); and for each stage that the reward mode pays, `score_<stage>` (a number, or None) and
    `unscored_<stage>` (None, or the reason why there is no score; "not_asked" until the stage is paid).

    With a `context`, which bounds what the policy reads, both also have `view`, the messages that the policy reads
    next, and `folds`, how often they were folded so far. Whoever keeps a conversation of his own begins it again from
    `view` where `folds` has grown.

    What was written before `CharacterLimit`, or `truncate`, ends an episode is scored.
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
        scaffold: StageSet | str = DEEP_RESEARCH,
        context: ContextLimits | None = None,
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
            scaffold=scaffold,
            context=context,
        )
        check_render_mode(render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self.observation_space = self.action_space = AnyText()
        self._episode: Episode | None = None
        self._payments = self.env_spec.payments()
        self._loop = LoopThread()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin an episode on a question drawn from `queries`.

        `options` may name it instead: {"query": Query(...)}, or {"question": "...", "answer_format": "short"}.
        """
        super().reset(seed=seed)
        query = choose_query(options or {}, self.env_spec.queries, self.np_random)
        prompt = self.env_spec.prompt(query)
        self._episode = self.env_spec.open_episode(query, prompt, seed=seed)
        self._payments = self.env_spec.payments()
        return prompt, reset_info(self._episode)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take the policy's next emission; the class describes the result."""
        if not isinstance(action, str):
            raise UsageError(f"the action is {kind_of(action)}; it must be the text of one emission, a str.")
        spec, episode, payments = self.env_spec, self.episode, self._payments
        taken = self._loop.run(
            take_step(episode, action, toolbox=spec.toolbox, mode=spec.reward, scorer=spec.scorer, payments=payments)
        )
        return taken

    def truncate(self, ending: Ending = Ending.TURN_BUDGET) -> tuple[float, Info]:
        """End the running episode by a limit of the caller's; the reward and `info` of what was written so far.

        Gymnasium's `TimeLimit` does not call it: after it, the stages that were not paid are "not_asked".
        """
        spec = self.env_spec
        payments = self._payments
        return self._loop.run(cut_short(self.episode, ending, mode=spec.reward, scorer=spec.scorer, payments=payments))

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
