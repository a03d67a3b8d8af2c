"""Trajectories and the rubrics that judged them: pages, one with its elements and tokens, groups, questions."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from rubricem_agent.viewer.server.answers import answer
from rubricem_agent.viewer.server.asking import (
    ElementNumber,
    Filtered,
    PageNumber,
    PageSize,
    Recorded,
    SearchText,
)

routes = APIRouter(prefix="/runs/{run}")
GroupSort = Literal["attempt", "mean", "plan", "research", "review", "answer"]
Offset = Annotated[int, Query(ge=0, le=2**31 - 1)]


@routes.get("/trajectories")
def list_trajectories(
    request: Request,
    run: Recorded,
    filtered: Filtered,
    page: PageNumber = 1,
    size: PageSize = 50,
    q: SearchText = "",
    question: Annotated[str, Query(max_length=64)] = "",
    group: Annotated[str, Query(max_length=30)] = "",
) -> Response:
    found = run.trajectories(
        filtered.wanted, text=q, question=question, group=group, lesson=filtered.lesson, page=page, size=size
    )
    return answer(request, found)


@routes.get("/trajectories/{rollout}")
def show_trajectory(request: Request, run: Recorded, rollout: str, from_element: ElementNumber = 0) -> Response:
    return answer(request, run.trajectory(rollout, from_element=from_element))


@routes.get("/trajectories/{rollout}/elements/{index}")
def show_element(request: Request, run: Recorded, rollout: str, index: int, offset: Offset = 0) -> Response:
    return answer(request, run.element(rollout, max(index, 0), offset=offset))


@routes.get("/trajectories/{rollout}/tokens")
def show_tokens(
    request: Request,
    run: Recorded,
    rollout: str,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 2_000,
) -> Response:
    return answer(request, run.tokens(rollout, offset=offset, limit=limit))


@routes.get("/groups/{group}")
def show_group(request: Request, run: Recorded, group: str, sort: GroupSort = "attempt") -> Response:
    return answer(request, run.group(group, sort=sort))


@routes.get("/questions")
def list_questions(
    request: Request, run: Recorded, page: PageNumber = 1, size: PageSize = 50, q: SearchText = ""
) -> Response:
    return answer(request, run.questions(text=q, page=page, size=size))


@routes.get("/questions/{question}")
def show_rubrics(request: Request, run: Recorded, question: str) -> Response:
    return answer(request, run.rubrics(question))
