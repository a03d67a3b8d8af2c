"""Many episodes at once on one event loop: tool calls overlap, and text stays text.

Gymnasium's AsyncVectorEnv starts a process for each episode and, by default, returns blank strings for text
observations; its SyncVectorEnv waits for each tool call in turn.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rubricem_env.concurrency import LoopThread
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_env.domain.trajectory import Query, Trajectory
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Continue, Episode, EpisodeLimits, Finished
from rubricem_env.env.render import render_ansi
from rubricem_env.env.reset_options import choose_query
from rubricem_env.env.rewards import Payout, RewardMode, Scorer, score_with, stages_of, stages_to_score, step_reward
from rubricem_env.env.spec import Prompt, check_render_mode, make_env_spec, question_prompt
from rubricem_env.env.step import StepOutcome, advance, reset_info, step_outcome
from rubricem_env.env.text_space import AnyText
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.render import TokenCount, estimate_tokens

Texts = tuple[str, ...]
Infos = dict[str, Any]


class DeepResearchVectorEnv(gymnasium.vector.VectorEnv[Texts, Texts, np.ndarray]):
    """`num_envs` episodes stepped together; the arguments are those of `DeepResearchEnv`.

    Episodes are never reset automatically, since a reset would spend searches: the autoreset mode is DISABLED. An
    episode that is over ignores its action (pass ""), repeats its flags, and restarts only with
    `reset(options={"reset_mask": mask})`. With `options={"query": ...}` or `{"question": ...}` all of them attempt the
    same question; when the last one of such a group ends, the scorer gets the whole group in one call, and each of
    them is paid every stage on that step. No stage of an episode is paid twice.

    `info` has the keys of `DeepResearchEnv`, each an array over the episodes with its `_key` mask. `score_<stage>` is
    an array of floats with NaN for a missing score, in every step; its mask marks the episodes that this step pays.
    """

    metadata = {"render_modes": ["ansi"], "autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
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
        if num_envs < 1:
            raise UsageError(f"num_envs is {num_envs}; a vector environment needs at least one episode.")
        self.num_envs = num_envs
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
        self.single_observation_space = self.single_action_space = AnyText()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes: list[Episode | None] = [None] * num_envs
        self._payments = [self.env_spec.payments() for _ in range(num_envs)]
        self._loop = LoopThread()

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Texts, Infos]:
        """Begin new episodes: all of them, or those of `options["reset_mask"]`."""
        options = dict(options or {})
        mask = self._read_mask(options.pop("reset_mask", None))
        seeds = self._read_seeds(seed)
        super().reset(seed=next((given for given in seeds if given is not None), None))
        infos: Infos = {}
        observations = []
        for index in range(self.num_envs):
            if mask[index]:
                given = seeds[index]
                rng = self.np_random if given is None else np.random.default_rng(given)
                query = choose_query(options, self.env_spec.queries, rng)
                prompt = self.env_spec.prompt(query)
                episode = self._episodes[index] = self.env_spec.open_episode(query, prompt, seed=given)
                self._payments[index] = self.env_spec.payments()
                infos = self._add_info(infos, reset_info(episode), index)
            observations.append(self.env_spec.prompt(self._episode(index).query))
        return tuple(observations), infos

    def step(self, actions: Sequence[str]) -> tuple[Texts, np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Take one emission for each episode; tool calls run concurrently."""
        self._check_actions(actions)
        outcomes, paid = self._loop.run(self._step_all(actions))
        infos: Infos = {}
        for index, outcome in enumerate(outcomes):
            infos = self._add_info(infos, outcome.info, index)
        for stage in stages_of(self.env_spec.reward, self.env_spec.stage_set.scaffold):
            scores = [outcome.info[f"score_{stage}"] for outcome in outcomes]
            infos[f"score_{stage}"] = np.array(scores, dtype=np.float64)  # None becomes NaN
            infos[f"_score_{stage}"] = np.array([stage in payout.stages for payout in paid], dtype=np.bool_)
        return (
            tuple(outcome.observation for outcome in outcomes),
            np.array([outcome.reward for outcome in outcomes], dtype=np.float64),
            np.array([outcome.terminated for outcome in outcomes], dtype=np.bool_),
            np.array([outcome.truncated for outcome in outcomes], dtype=np.bool_),
            infos,
        )

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """The record of each episode so far."""
        return tuple(self._episode(index).trajectory for index in range(self.num_envs))

    def render(self) -> tuple[str, ...] | None:
        """Each episode so far, stage by stage; None unless render_mode is "ansi"."""
        if self.render_mode != "ansi":
            return None
        return tuple(render_ansi(self._episode(index).read()) for index in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        del kwargs
        self._loop.close()

    async def _step_all(self, actions: Sequence[str]) -> tuple[list[StepOutcome], list[Payout]]:
        episodes = [self._episode(index) for index in range(self.num_envs)]
        replies = await asyncio.gather(
            *(self._advance(episode, text) for episode, text in zip(episodes, actions, strict=True))
        )
        payouts = await self._pay(episodes)
        outcomes = [
            step_outcome(episode, reply, reward=step_reward(*payout), scores=payments.info())
            for episode, reply, payout, payments in zip(episodes, replies, payouts, self._payments, strict=True)
        ]
        return outcomes, payouts

    async def _advance(self, episode: Episode, text: str) -> Continue | Finished:
        if episode.ending is not None:
            return Finished(episode.ending)
        return await advance(episode, self.env_spec.toolbox, text)

    async def _pay(self, episodes: Sequence[Episode]) -> list[Payout]:
        """What this step pays each episode, each stage once.

        An episode that is alone with its question is paid as in the single environment. A group is paid on the step in
        which its last episode ends: every stage of every episode at once. An episode whose answer has been paid joins
        no later group of its question.
        """
        payouts = [Payout()] * len(episodes)
        scorer = self.env_spec.scorer
        if scorer is None:
            return payouts
        due = tuple(self._due(episodes))
        judged = await asyncio.gather(
            *(score_with(scorer, [episodes[index].trajectory for index in group]) for group, _ in due)
        )
        for (group, stages), judgements in zip(due, judged, strict=True):
            for index, judgement in zip(group, judgements, strict=True):
                payouts[index] = self._payments[index].pay(Payout(judgement, stages))
        return payouts

    def _due(self, episodes: Sequence[Episode]) -> Iterator[tuple[list[int], tuple[str, ...]]]:
        """The indices of the episodes that are judged together now, with the stages that are paid."""
        scaffold = self.env_spec.stage_set.scaffold
        groups: dict[str, list[int]] = defaultdict(list)
        for index, episode in enumerate(episodes):
            if scaffold.last not in self._payments[index].stages:
                groups[episode.query.key].append(index)
        for group in groups.values():
            if all(episodes[index].is_over for index in group):
                stages = stages_of(self.env_spec.reward, scaffold)
            else:
                alone = episodes[group[0]] if len(group) == 1 else None
                stages = () if alone is None else stages_to_score(alone, self.env_spec.reward, self.env_spec.scorer)
            if stages:
                yield group, stages

    def _episode(self, index: int) -> Episode:
        episode = self._episodes[index]
        if episode is None:
            raise UsageError(f"episode {index} has not begun; call reset() first.")
        return episode

    def _read_mask(self, mask: object) -> np.ndarray:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        read = np.asarray(mask)
        if read.dtype != np.bool_ or read.shape != (self.num_envs,):
            raise UsageError(f"reset_mask is {mask!r}; it must be {self.num_envs} booleans, one for each episode.")
        return read

    def _check_actions(self, actions: object) -> None:
        if isinstance(actions, str) or not isinstance(actions, Collection):
            raise UsageError(
                f"step() got one {type(actions).__name__} for {self.num_envs} episodes; give one text for each."
            )
        if len(actions) != self.num_envs:
            raise UsageError(f"step() got {len(actions)} actions for {self.num_envs} episodes; give one text for each.")
        for index, text in enumerate(actions):
            if not isinstance(text, str):
                raise UsageError(
                    f"action {index} of step() is a {type(text).__name__}; each must be the text of one emission, "
                    "a str. "
                    "An episode that is over takes ''."
                )

    def _read_seeds(self, seed: object) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + index for index in range(self.num_envs)]
        if isinstance(seed, str) or not isinstance(seed, Collection):
            raise UsageError(
                f"reset()'s seed is {seed!r}; it must be a whole number, or a list with one for each episode."
            )
        if len(seed) != self.num_envs:
            raise UsageError(f"reset() got {len(seed)} seeds for {self.num_envs} episodes; give one for each.")
        return [None if number is None else int(number) for number in seed]
