"""Fakes for whoever uses a judge: a scripted one, and a model that reads the fenced prompts as a judge model should."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from rubricem_env.domain.rubric import Rubric
from rubricem_env.judge.asking import PROPOSE, REFLECT
from rubricem_env.judge.base import Contrast, Examination, Findings, Proposal
from rubricem_env.judge.fence import read_blocks
from rubricem_env.judge.opinion import Opinion
from rubricem_env.llm.base import ChatRequest

Marker = Callable[[Examination, Rubric], int | None]
Delay = Callable[[str, object], float]


class ScriptedJudge:
    """Proposes given rubrics and marks by a function; None leaves a rubric unmarked. Latency is simulated on demand."""

    def __init__(
        self,
        mark: Marker,
        *,
        rubrics: tuple[Rubric, ...] = (),
        delay: Delay | None = None,
        name: str = "scripted",
    ) -> None:
        self.name = name
        self.contrasts: list[Contrast] = []
        self.examinations: list[Examination] = []
        self._mark = mark
        self._rubrics = rubrics
        self._delay = delay

    async def propose(self, contrast: Contrast) -> Proposal:
        """The given rubrics."""
        self.contrasts.append(contrast)
        await self._wait("propose", contrast)
        return Proposal(self._rubrics)

    async def score(self, examination: Examination) -> Findings:
        """The function's marks."""
        self.examinations.append(examination)
        await self._wait("score", examination)
        marks = {rubric.id: self._mark(examination, rubric) for rubric in examination.rubrics}
        opinions = {key: Opinion.whole(key, mark, "scripted") for key, mark in marks.items() if mark is not None}
        missing = len(marks) - len(opinions)
        return Findings(opinions, failure=f"{missing} of {len(marks)} were scripted to fail" if missing else "")

    async def _wait(self, phase: str, asked: object) -> None:
        if self._delay is not None:
            await asyncio.sleep(self._delay(phase, asked))


class FenceReader:
    """The answer function of a scripted model that takes fenced content for data and nothing else for content.

    `mark` is given a criterion and the blocks, `draft` the blocks of a contrast; both see parsed JSON.
    """

    def __init__(
        self,
        mark: Callable[[Mapping[str, Any], Mapping[str, Any]], int],
        *,
        draft: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        self._mark = mark
        self._draft = draft

    def __call__(self, request: ChatRequest) -> str:
        blocks = read_blocks(request.prompt)
        if request.purpose == PROPOSE:
            return json.dumps(self._draft(blocks) if self._draft else empty_proposal())
        if request.purpose == REFLECT:
            return json.dumps({"scores": [_fair_score(c["index"]) for c in blocks["CANDIDATES"]]})
        scores = [
            {"index": row["index"], "justification": "read behind the fence", "score": self._mark(row, blocks)}
            for row in blocks["CRITERIA"]
        ]
        return json.dumps({"scores": scores})


def empty_proposal() -> dict[str, Any]:
    """A proposal in the wire's shape that proposes nothing."""
    return {f"stage_{number}": {"positive_rubrics": [], "negative_rubrics": []} for number in (1, 2, 3, 4)}


def _fair_score(index: int) -> dict[str, Any]:
    dimensions = {"diagnostic_accuracy": 0.5, "specificity": 0.5, "scope_and_balance": 0.5}
    return {"index": index, "justification": "scripted", **dimensions}
