"""When several episodes attempt one question, the judge contrasts them: it gets the group in one call, once all are over."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence

from rubricem_env.domain.stage import Stage
from rubricem_env.env.episode import Episode
from rubricem_env.env.reward import Payout, stages_of, stages_to_score
from rubricem_env.env.scoring import RewardMode, Scorer


class GroupRewards:
    """Pays the episodes of a vector environment, each stage of each episode once.

    An episode alone with its question is paid as in the single environment. A group is paid on the step in which
    its last episode ends, every stage at once; the earlier ones get theirs on that step too. An episode whose answer
    has been paid is settled: it joins no later group of its question.
    """

    def __init__(self, size: int) -> None:
        self._paid: list[tuple[Stage, ...]] = [()] * size

    def begin(self, place: int) -> None:
        """A new episode stands in this place, and nothing of it is paid."""
        self._paid[place] = ()

    async def pay(self, episodes: Sequence[Episode], *, mode: RewardMode, scorer: Scorer | None) -> list[Payout]:
        """What this step pays each episode."""
        payouts = [Payout()] * len(episodes)
        if scorer is None:
            return payouts
        due = tuple(self._due(episodes, mode))
        judged = await asyncio.gather(
            *(scorer.score([episodes[place].trajectory for place in places]) for places, _ in due)
        )
        for (places, stages), judgements in zip(due, judged, strict=True):
            for place, judgement in zip(places, judgements, strict=True):
                owed = tuple(stage for stage in stages if stage not in self._paid[place])
                self._paid[place] += owed
                payouts[place] = Payout(judgement, owed)
        return payouts

    def _due(self, episodes: Sequence[Episode], mode: RewardMode) -> Iterator[tuple[list[int], tuple[Stage, ...]]]:
        """The episodes that are judged together now, by their places, with the stages that this settles."""
        groups: dict[str, list[int]] = defaultdict(list)
        for place, episode in enumerate(episodes):
            if Stage.ANSWER not in self._paid[place]:
                groups[episode.query.key].append(place)
        for places in groups.values():
            if all(episodes[place].is_over for place in places):
                stages = stages_of(mode)
            else:
                stages = stages_to_score(episodes[places[0]], mode) if len(places) == 1 else ()
            if stages:
                yield places, stages
