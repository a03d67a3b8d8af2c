"""A judge that says when it has marked an attempt, so that a person sees how far the judging is."""

from collections.abc import Callable

from rubricem_env.judge.base import Contrast, Examination, Findings, Judge, Proposal


class WatchedJudge:
    """Another judge's marks, unchanged."""

    def __init__(self, judge: Judge, on_marked: Callable[[int], None]) -> None:
        self._judge = judge
        self._on_marked = on_marked

    @property
    def name(self) -> str:
        return self._judge.name

    async def propose(self, contrast: Contrast) -> Proposal:
        return await self._judge.propose(contrast)

    async def score(self, examination: Examination) -> Findings:
        findings = await self._judge.score(examination)
        self._on_marked(1)
        return findings
