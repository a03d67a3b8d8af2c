"""When several episodes attempt one question, the judge contrasts them: it gets the group in one call, once all are over."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from rubricem_env.domain.judgement import Judgement
from rubricem_env.env.episode import Episode
from rubricem_env.env.reward import score_step
from rubricem_env.env.scoring import RewardMode, Scorer


async def judge_groups(
    episodes: Sequence[Episode], was_over: Sequence[bool], *, mode: RewardMode, scorer: Scorer | None
) -> list[Judgement | None]:
    """The judgement that each episode's reward of this step is read from.

    An episode alone with its question is scored as in the single environment. A group is paid on the step in which
    its last episode ends, every stage at once; the earlier ones get theirs on that step too.
    """
    if scorer is None or mode is RewardMode.NONE:
        return [None] * len(episodes)
    groups: dict[str, list[int]] = defaultdict(list)
    for index, episode in enumerate(episodes):
        groups[episode.query.key].append(index)
    judged = await asyncio.gather(
        *(
            _judge_group([episodes[i] for i in group], [was_over[i] for i in group], mode, scorer)
            for group in groups.values()
        )
    )
    judgements: list[Judgement | None] = [None] * len(episodes)
    for group, found in zip(groups.values(), judged, strict=True):
        for index, judgement in zip(group, found, strict=True):
            judgements[index] = judgement
    return judgements


async def _judge_group(
    episodes: list[Episode], was_over: list[bool], mode: RewardMode, scorer: Scorer
) -> Sequence[Judgement | None]:
    if len(episodes) == 1:
        return [None if was_over[0] else await score_step(episodes[0], mode, scorer)]
    if all(was_over) or not all(episode.is_over for episode in episodes):
        return [None] * len(episodes)
    return await scorer.score([episode.trajectory for episode in episodes])
