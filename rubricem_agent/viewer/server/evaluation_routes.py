"""Evaluations: the numbers, a page of examples, and one example."""

from fastapi import APIRouter, Request, Response

from rubricem_agent.viewer.api_models.evaluation import ExampleSort
from rubricem_agent.viewer.evaluation_view import view_evaluation
from rubricem_agent.viewer.example_views import view_example, view_examples
from rubricem_agent.viewer.server.answers import answer
from rubricem_agent.viewer.server.asking import ElementNumber, Evaluation, PageNumber, PageSize, SearchText

routes = APIRouter(prefix="/runs/{run}/evaluation")


@routes.get("")
def show_evaluation(request: Request, run: Evaluation) -> Response:
    return answer(request, view_evaluation(run))


@routes.get("/examples")
def list_examples(
    request: Request,
    run: Evaluation,
    page: PageNumber = 1,
    size: PageSize = 50,
    q: SearchText = "",
    sort: ExampleSort = "id",
) -> Response:
    return answer(request, view_examples(run, number=page, size=size, text=q, sort=sort))


@routes.get("/examples/{example}")
def show_example(request: Request, run: Evaluation, example: str, from_element: ElementNumber = 0) -> Response:
    return answer(request, view_example(run, example, from_element=from_element))
