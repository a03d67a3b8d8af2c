"""Fakes for users of a judge: scripted judges, and sample attempts at one question."""

import asyncio
import json
from collections.abc import Callable, Mapping

from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.judgement import Rubric, RubricScore
from rubricem_env.domain.trajectory import Ending, Observation, Origin, Segment, ToolCall, ToolStatus, Trajectory
from rubricem_env.judge.base import Contrast, Proposal, ScoringRequest, ScoringResult

RubricScorer = Callable[[ScoringRequest, Rubric], int | None]
Delay = Callable[[str, object], float]


class ScriptedJudge:
    """Proposes given rubrics and scores by a function; None leaves a rubric without a score.

    Latency is simulated on demand.
    """

    def __init__(
        self,
        score: RubricScorer,
        *,
        rubrics: tuple[Rubric, ...] = (),
        delay: Delay | None = None,
        name: str = "scripted",
    ) -> None:
        self.name = name
        self.contrasts: list[Contrast] = []
        self.requests: list[ScoringRequest] = []
        self._score_rubric = score
        self._rubrics = rubrics
        self._delay = delay

    async def propose(self, contrast: Contrast) -> Proposal:
        """The given rubrics."""
        self.contrasts.append(contrast)
        await self._wait("propose", contrast)
        return Proposal(self._rubrics)

    async def score(self, request: ScoringRequest) -> ScoringResult:
        """The function's scores."""
        self.requests.append(request)
        await self._wait("score", request)
        scores = {rubric.id: self._score_rubric(request, rubric) for rubric in request.rubrics}
        rubric_scores = {
            key: RubricScore.whole(key, score, "scripted") for key, score in scores.items() if score is not None
        }
        missing = len(scores) - len(rubric_scores)
        return ScoringResult(
            rubric_scores, failure=f"{missing} of {len(scores)} were scripted to fail" if missing else ""
        )

    async def _wait(self, phase: str, asked: object) -> None:
        if self._delay is not None:
            await asyncio.sleep(self._delay(phase, asked))


_TEXTS: Mapping[str, list[str]] = json.loads(package_text("rubricem_env.testing", "attempt.json"))
QUESTION, PLAN, POOR_PLAN, REVIEW, ANSWER, POOR_ANSWER = map("".join, _TEXTS.values())


def call(query: str, *, name: str = "google_search") -> str:
    """A policy turn that searches."""
    return f'<call_tool name="{name}">{query}</call_tool>'


def policy(text: str) -> Segment:
    return Segment(origin=Origin.POLICY, text=text)


def tool(query: str, snippet_id: str, text: str, *, status: ToolStatus = ToolStatus.OK) -> Segment:
    """The observation that answers a search."""
    ids = (snippet_id,) if status is ToolStatus.OK else ()
    body = f'<snippet id="{snippet_id}">{text}</snippet>' if ids else f"The call failed ({status.value}): no."
    record = Observation(status=status, call=ToolCall(name="google_search", query=query), snippet_ids=ids)
    return Segment(origin=Origin.TOOL, text=f"<tool_output>\n{body}\n</tool_output>", observation=record)


def attempt(
    *,
    plan: str = PLAN,
    review: str = REVIEW,
    answer: str = ANSWER,
    page: str = "The width of Amber Badger is 130 m.",
    question: str = QUESTION,
) -> Trajectory:
    """Plan, two searches, review, answer; any part replaced."""
    first = "Amber Badger river width"
    second = "Tall Fox river width season"
    segments = [
        Segment(origin=Origin.PROMPT, text=question),
        policy(plan + call(first)),
        tool(first, "S_1", page),
        policy(f"<think>So.</think><state_evaluation>S_1 gives the width.</state_evaluation>{call(second)}"),
        tool(second, "S_2", "The width of Tall Fox is 60 m."),
        policy(f"<think>Done.</think><state_evaluation>S_2 gives the other.</state_evaluation>{review}{answer}"),
    ]
    ending = Ending.ANSWERED if "</answer>" in answer else Ending.TOKEN_BUDGET
    return Trajectory(question=question, segments=tuple(segments), ending=ending)


def careless() -> Trajectory:
    """A poor plan, the same failed search twice, no review, an invented citation."""
    query = "rivers"
    segments = [
        Segment(origin=Origin.PROMPT, text=QUESTION),
        policy(POOR_PLAN + call(query)),
        tool(query, "", "", status=ToolStatus.ERROR),
        policy(f"<think>Again.</think><state_evaluation>Nothing.</state_evaluation>{call(query)}"),
        tool(query, "", "", status=ToolStatus.ERROR),
        policy(f"<think>Enough.</think>{POOR_ANSWER}"),
    ]
    return Trajectory(question=QUESTION, segments=tuple(segments), ending=Ending.ANSWERED)
