"""The routes of evaluations."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from rubricem_viewer.evaluation_view import view_evaluation
from rubricem_viewer.example_views import ExampleFilter, view_example, view_examples
from rubricem_viewer.replies import answer
from rubricem_viewer.routes.requested import ElementNumber, Evaluation, Shelf

evaluation_routes = APIRouter(prefix="/runs/{run}/evaluation")


@evaluation_routes.get("")
def show_evaluation(request: Request, shelf: Shelf, run: Evaluation) -> Response:
    return answer(request, view_evaluation(run, [other for other in shelf.runs() if other.kind == "evaluation"]))


@evaluation_routes.get("/examples")
def list_examples(request: Request, run: Evaluation, wanted: Annotated[ExampleFilter, Query()]) -> Response:
    return answer(request, view_examples(run, wanted))


@evaluation_routes.get("/examples/{example}")
def show_example(request: Request, run: Evaluation, example: str, from_element: ElementNumber = 0) -> Response:
    return answer(request, view_example(run, example, from_element=from_element))
