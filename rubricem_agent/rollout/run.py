"""One episode with a policy, from its opening to its end."""

from typing import NamedTuple, Protocol

from rubricem_agent.policy.base import ContextOverflow, Conversation, Listener, Opening, Policy, Sampling, Silence
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.tokens import label_tokens
from rubricem_env.domain.errors import ModelError, boundary
from rubricem_env.domain.query import Query
from rubricem_env.domain.trajectory import Ending
from rubricem_env.env.drive import advance
from rubricem_env.env.episode import Continue, Episode, Finished
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.reading import Reading
from rubricem_env.tools.base import Toolbox


class Attempt(NamedTuple):
    """One episode to play."""

    query: Query
    opening: Opening
    prompt_hash: str = ""
    seed: int = 0


class Setting(NamedTuple):
    """What all episodes of a run have in common."""

    policy: Policy
    toolbox: Toolbox
    limits: EpisodeLimits = EpisodeLimits()
    sampling: Sampling = Sampling()


class Audience(Listener, Protocol):
    """Follows an episode: the policy's text as it is written, and what it reads in return."""

    def observed(self, text: str) -> None:
        """A tool's answer, or a notice of the environment."""
        ...


class NoAudience(Silence):
    """An audience that does not follow."""

    def observed(self, text: str) -> None:
        return None


async def run_episode(attempt: Attempt, setting: Setting, *, audience: Audience | None = None) -> Rollout:
    """Play one episode to its end. A failure of the policy is on the rollout; nothing is raised for it.

    A conversation that outgrows the policy's context ends like one that used up its tokens: by its limits.
    """
    episode = Episode(
        attempt.query,
        prompt=attempt.opening.user,
        limits=setting.limits,
        count_tokens=setting.policy.count_tokens,
        seed=attempt.seed,
    )
    played = _Played(episode, audience or NoAudience())
    conversation = setting.policy.open(attempt.opening, sampling=setting.sampling, seed=attempt.seed)
    try:
        failure = await played.to_the_end(conversation, setting)
    finally:
        conversation.close()
    return _record(played, conversation, attempt=attempt, setting=setting, failure=failure)


class _Played:
    """An episode while it is played."""

    def __init__(self, episode: Episode, audience: Audience) -> None:
        self.episode = episode
        self.usage = Usage()
        self.overflowed = False
        self._audience = audience

    async def to_the_end(self, conversation: Conversation, setting: Setting) -> str:
        """Turn the crank until the episode is over; the failure that ended it, or nothing."""
        try:
            reply = await self._turn(conversation, setting)
            while not isinstance(reply, Finished):
                reply = await self._turn(conversation, setting)
        except ContextOverflow:
            self.overflowed = True
            self.episode.abandon()
        except ModelError as failure:
            self.episode.abandon()
            return str(failure)
        return ""

    async def _turn(self, conversation: Conversation, setting: Setting) -> Continue | Finished:
        left = setting.limits.max_tokens - self.episode.tokens_used
        with boundary(ModelError, f"get a turn from {setting.policy.name}"):
            emission = await conversation.emit(
                max_tokens=max(1, min(left, setting.sampling.max_turn_tokens)), listener=self._audience
            )
        self.usage += emission.usage
        reply = await advance(self.episode, setting.toolbox, emission.text)
        if reply.observation:
            self._audience.observed(reply.observation)
            conversation.observe(reply.observation)
        return reply


def _record(
    played: _Played, conversation: Conversation, *, attempt: Attempt, setting: Setting, failure: str
) -> Rollout:
    reading: Reading = played.episode.read()
    trajectory = reading.trajectory
    if played.overflowed:
        trajectory = trajectory.model_copy(update={"ending": Ending.TOKEN_BUDGET})
    pieces = conversation.pieces
    return Rollout(
        trajectory=trajectory,
        policy=setting.policy.name,
        prompt_hash=attempt.prompt_hash,
        temperature=setting.sampling.temperature,
        usage=played.usage,
        tokens=label_tokens(pieces, reading.turns, spans=reading.spans) if pieces else None,
        failure=failure,
    )
