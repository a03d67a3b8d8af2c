"""The routes of runs, their curves and comparisons."""

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from rubricem_env.domain.errors import FileFormatError
from rubricem_viewer.ablation import load_ablation
from rubricem_viewer.api.figures import Comparison
from rubricem_viewer.api.runs import RunCard, RunList
from rubricem_viewer.attempt_view import latest_names
from rubricem_viewer.curves import compare_runs, make_figures
from rubricem_viewer.refusals import NotThereError
from rubricem_viewer.replies import answer
from rubricem_viewer.routes.requested import Shelf, TheRun
from rubricem_viewer.run_cards import make_card, make_detail
from rubricem_viewer.run_folder import RunFolder
from rubricem_viewer.shelf import RunShelf

run_routes = APIRouter()

MOST_COMPARED = 12
_NOT_RECORDED = "No trajectories were recorded; train with record=true to have them."


@run_routes.get("/runs")
def list_runs(request: Request, shelf: Shelf) -> Response:
    runs = shelf.runs()
    # An ablation's folder holds runs as well.
    only = runs[0].id if len(runs) == 1 and runs[0].folder == shelf.root else None
    cards = sorted((_card(run, shelf) for run in runs), key=lambda card: (-card.changed, card.name))
    return answer(request, RunList(root=shelf.root.name, only_run=only, runs=tuple(cards)))


@run_routes.get("/compare")
def compare(request: Request, shelf: Shelf, run: Annotated[list[str], Query(max_length=MOST_COMPARED)]) -> Response:
    named = [shelf.find(run_id) for run_id in dict.fromkeys(run)]
    training = [folder for folder in named if folder.kind == "training"]
    if len(training) < 2:
        raise NotThereError("a comparison needs two training runs or more.")
    pairs = [(make_card(folder), folder.read()) for folder in training]
    policies, judges = zip(*map(latest_names, training), strict=True)
    return answer(request, compare_runs(pairs, policies=policies, judges=judges))


@run_routes.get("/runs/{run}")
def show_run(request: Request, shelf: Shelf, run: TheRun) -> Response:
    return answer(request, make_detail(run, _card(run, shelf), _notes(run)))


@run_routes.get("/runs/{run}/state")
def show_state(request: Request, shelf: Shelf, run: TheRun) -> Response:
    return answer(request, _card(run, shelf))


@run_routes.get("/runs/{run}/curves")
def show_curves(request: Request, run: TheRun) -> Response:
    if run.kind != "training":
        raise NotThereError(f"{run.name} is no training run; it has no curves.")
    return answer(request, Comparison(figures=make_figures(run.read())))


@run_routes.get("/runs/{run}/ablation")
def show_ablation(request: Request, run: TheRun) -> Response:
    if run.kind != "ablation":
        raise NotThereError(f"{run.name} is no ablation.")
    return answer(request, load_ablation(run.folder))


def _card(run: RunFolder, shelf: RunShelf) -> RunCard:
    return make_card(run).model_copy(update={"has_bank": shelf.has_bank(run)})


def _notes(run: RunFolder) -> list[str]:
    damaged = run.record.damaged + run.bank.damaged + run.answers.damaged
    notes = [f"{damaged} lines of this run's record cannot be read and are left out."] if damaged else []
    if run.kind == "training" and not len(run.record.table.rows):
        notes.append(_NOT_RECORDED if _records_nothing(run) else "No step has recorded a trajectory yet.")
    return notes


def _records_nothing(run: RunFolder) -> bool:
    with suppress(FileFormatError):  # the card says why it cannot be read
        return run.read().settings.get("record") is not True
    return False
