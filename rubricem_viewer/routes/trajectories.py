"""The routes of trajectories, groups and questions."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from rubricem_env.domain.base import StageName
from rubricem_viewer.attempt_view import view_attempt, view_element
from rubricem_viewer.filters import PageFilter, RolloutFilter
from rubricem_viewer.group_view import view_group
from rubricem_viewer.question_list import list_questions
from rubricem_viewer.replies import answer
from rubricem_viewer.routes.requested import ElementNumber, Recorded
from rubricem_viewer.rubric_history import view_history
from rubricem_viewer.token_page import list_tokens
from rubricem_viewer.trajectory_list import list_trajectories

trajectory_routes = APIRouter(prefix="/runs/{run}")

Offset = Annotated[int, Query(ge=0, le=2**31 - 1)]


@trajectory_routes.get("/trajectories")
def list_attempts(request: Request, run: Recorded, wanted: Annotated[RolloutFilter, Query()]) -> Response:
    return answer(request, list_trajectories(run, wanted))


@trajectory_routes.get("/trajectories/{rollout}")
def show_trajectory(request: Request, run: Recorded, rollout: str, from_element: ElementNumber = 0) -> Response:
    return answer(request, view_attempt(run, rollout, from_element=from_element))


@trajectory_routes.get("/trajectories/{rollout}/elements/{index}")
def show_element(request: Request, run: Recorded, rollout: str, index: int, offset: Offset = 0) -> Response:
    return answer(request, view_element(run, rollout, max(index, 0), offset=offset))


@trajectory_routes.get("/trajectories/{rollout}/tokens")
def show_tokens(
    request: Request,
    run: Recorded,
    rollout: str,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 2_000,
) -> Response:
    return answer(request, list_tokens(run, rollout, offset=offset, limit=limit))


@trajectory_routes.get("/groups/{group}")
def show_group(request: Request, run: Recorded, group: str, sort: StageName = "attempt") -> Response:
    return answer(request, view_group(run, group, sort=sort))


@trajectory_routes.get("/questions")
def show_questions(request: Request, run: Recorded, wanted: Annotated[PageFilter, Query()]) -> Response:
    return answer(request, list_questions(run, wanted))


@trajectory_routes.get("/questions/{question}")
def show_rubrics(request: Request, run: Recorded, question: str) -> Response:
    return answer(request, view_history(run, question))
