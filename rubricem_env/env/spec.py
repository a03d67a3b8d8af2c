"""What all episodes of an environment share: its questions, toolbox, limits, reward and prompt.

What is left out of the arguments comes from the shipped world, without key or network.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, read_stage_set
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.env.rewards import Payments, RewardMode, Scorer, check_reward
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.render import TokenCount, estimate_tokens
from rubricem_env.world.offline import offline_queries, shipped_toolbox

Prompt = Callable[[Query], str]


def question_prompt(query: Query) -> str:
    """The question alone: the default prompt."""
    return query.question


class EnvSpec(NamedTuple):
    """What all episodes of an environment share; `make_env_spec` checks it and fills in the shipped world."""

    queries: tuple[Query, ...]
    toolbox: Toolbox
    limits: EpisodeLimits
    reward: RewardMode
    scorer: Scorer | None
    prompt: Prompt
    count_tokens: TokenCount = estimate_tokens
    """The policy's tokenizer counts: all limits in tokens are in its own, so that no page uses up an episode."""
    system: str = ""
    """The rules of the scaffold, as a system message before the prompt; the adapters of chat libraries send it."""

    stage_set: StageSet = DEEP_RESEARCH
    context: ContextLimits = ContextLimits()
    """How much of an episode the policy reads."""

    def payments(self) -> Payments:
        """The payments of a new episode."""
        return Payments(self.reward, self.stage_set.scaffold)

    def open_episode(self, query: Query, prompt: str | None, *, seed: int | None = None) -> Episode:
        """A new episode within the limits.

        Raises:
            ConfigError: the prompt leaves no room in a folded context.
        """
        return Episode(
            query,
            prompt=prompt,
            limits=self.limits,
            count_tokens=self.count_tokens,
            seed=seed,
            scaffold=self.stage_set.scaffold,
            context=self.context,
            system=self.system,
        )

    def query(self, key: str) -> Query:
        """A question by its key, which names it in a library's data sets.

        Raises:
            UsageError: the key is unknown.
        """
        query = next((query for query in self.queries if query.key == key), None)
        if query is None:
            raise UsageError(
                f"the query key is {key!r}; it names none of the {len(self.queries)} questions of this environment. "
                "Pass the query_key of a row of its data set."
            )
        return query


def make_env_spec(
    *,
    queries: Sequence[Query] | None = None,
    toolbox: Toolbox | None = None,
    limits: EpisodeLimits | None = None,
    reward: RewardMode = "none",
    scorer: Scorer | None = None,
    prompt: Prompt = question_prompt,
    count_tokens: TokenCount = estimate_tokens,
    system: str = "",
    scaffold: StageSet | str = DEEP_RESEARCH,
    context: ContextLimits | None = None,
) -> EnvSpec:
    """An environment's spec; the defaults are the shipped almanac, the paper's limits and no reward.

    Raises:
        ConfigError: the reward mode is unknown, or needs a scorer; or there is no such stage set.
        UsageError: another argument is not of its kind.
    """
    check_reward(reward, scorer)
    if toolbox is not None and not isinstance(toolbox, Toolbox):
        raise UsageError(
            f"toolbox is {kind_of(toolbox)}; a toolbox has `names` and `async call(ToolCall) -> ToolResult`. "
            "Combine single tools with LocalToolbox(tool, ...)."
        )
    if limits is not None and not isinstance(limits, EpisodeLimits):
        raise UsageError(f"limits is {kind_of(limits)}; it must be EpisodeLimits. Write EpisodeLimits(max_calls=...).")
    if context is not None and not isinstance(context, ContextLimits):
        raise UsageError(
            f"context is {kind_of(context)}; it must be ContextLimits. Write ContextLimits(fold_at=..., fold_to=...)."
        )
    if not callable(count_tokens):
        raise UsageError(
            f"count_tokens is {kind_of(count_tokens)}; it must be a function of a text that gives its number of tokens."
        )
    if not callable(prompt):
        raise UsageError(f"prompt is {kind_of(prompt)}; it must be a function, such as lambda query: query.question.")

    def checked(query: Query) -> str:
        text: object = prompt(query)
        if not isinstance(text, str):
            raise UsageError(
                f"prompt returned {kind_of(text)} for a query; it must return the text that reset() gives."
            )
        return text

    return EnvSpec(
        offline_queries() if queries is None else read_queries(queries),
        shipped_toolbox() if toolbox is None else toolbox,
        limits or EpisodeLimits(),
        reward,
        scorer,
        checked,
        count_tokens,
        system,
        scaffold if isinstance(scaffold, StageSet) else read_stage_set(scaffold),
        context or ContextLimits(),
    )


def check_render_mode(mode: str | None, known: Sequence[str]) -> None:
    """Refuse a render mode that the environment has not.

    Raises:
        UsageError: it is another one.
    """
    if mode is not None and mode not in known:
        raise UsageError(
            f"render_mode is {mode!r}; this environment has {', '.join(map(repr, known))}. Write "
            f"render_mode={known[0]!r} and print(env.render()), or leave it out."
        )


def read_queries(queries: object) -> tuple[Query, ...]:
    """The questions of an environment.

    Raises:
        UsageError: they are no sequence of queries.
    """
    if isinstance(queries, str | Query) or not isinstance(queries, Iterable):
        raise UsageError(f"queries is {kind_of(queries)}; it must be a sequence, such as [Query(question='...')].")
    read = tuple(queries)
    for index, query in enumerate(read):
        if not isinstance(query, Query):
            raise UsageError(
                f"queries[{index}] is {kind_of(query)}; each must be a Query. Write Query(question='...')."
            )
    return read


def kind_of(value: object) -> str:
    kind = type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return "None" if value is None else f"{article} {kind}"
