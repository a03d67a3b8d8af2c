"""Runs: the list, one, its state while it goes on, its curves, and several side by side."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from rubricem_agent.viewer.ablation_report import load_ablation
from rubricem_agent.viewer.api_models.runs import About, Alarm, Curves, RunCard, RunDetail, RunList, RunState
from rubricem_agent.viewer.comparison import ComparedRun, compare_runs
from rubricem_agent.viewer.curve_figures import make_figures
from rubricem_agent.viewer.problems import NotThereError
from rubricem_agent.viewer.run_card import make_card
from rubricem_agent.viewer.run_folder import RunFolder
from rubricem_agent.viewer.server.answers import answer
from rubricem_agent.viewer.server.asking import Desk, TheDesk, TheRun
from rubricem_env import __version__

routes = APIRouter()
MOST_COMPARED = 12


@routes.get("/about")
def about(request: Request, desk: TheDesk) -> Response:
    only = desk.shelf.only_run
    return answer(request, About(release=__version__, root=desk.shelf.root.name, only_run=only.id if only else None))


@routes.get("/runs")
def list_runs(request: Request, desk: TheDesk) -> Response:
    cards = sorted((_card(run, desk) for run in desk.shelf.runs()), key=lambda card: (-card.changed, card.name))
    return answer(request, RunList(runs=tuple(cards)))


@routes.get("/compare")
def compare(request: Request, desk: TheDesk, run: Annotated[list[str], Query(max_length=MOST_COMPARED)]) -> Response:
    found = [desk.shelf.find(one) for one in dict.fromkeys(run)]
    training = [ComparedRun(make_card(one), one.read()) for one in found if one.kind == "training"]
    if len(training) < 2:
        raise NotThereError("a comparison needs two training runs or more.")
    return answer(request, compare_runs(training))


@routes.get("/runs/{run}")
def show_run(request: Request, desk: TheDesk, run: TheRun) -> Response:
    card = _card(run, desk)
    read = run.read() if run.kind == "training" and card.state != "unreadable" else None
    return answer(
        request,
        RunDetail(
            card=card,
            settings=read.settings if read else {},
            alarms=tuple(Alarm(step=line.step, message=line.alarm) for line in read.log.alarms) if read else (),
            notes=tuple(_notes(run)),
        ),
    )


@routes.get("/runs/{run}/state")
def show_state(request: Request, desk: TheDesk, run: TheRun) -> Response:
    card = _card(run, desk)
    state = RunState.model_validate(card.model_dump(include=set(RunState.model_fields)))
    return answer(request, state)


@routes.get("/runs/{run}/curves")
def show_curves(request: Request, run: TheRun) -> Response:
    if run.kind != "training":
        raise NotThereError(f"{run.name} is no training run; it has no curves.")
    return answer(request, Curves(figures=make_figures(run.read())))


@routes.get("/runs/{run}/ablation")
def show_ablation(request: Request, run: TheRun) -> Response:
    if run.kind != "ablation":
        raise NotThereError(f"{run.name} is no ablation.")
    return answer(request, load_ablation(run.folder))


def _card(run: RunFolder, desk: Desk) -> RunCard:
    return make_card(run).model_copy(update={"has_bank": desk.banks.has_bank(run)})


def _notes(run: RunFolder) -> list[str]:
    damaged = run.record.damaged + run.bank.damaged + run.answers.damaged
    notes = [f"{damaged} lines of this run's record cannot be read and are left out."] if damaged else []
    if run.kind == "training" and not len(run.record.table):
        notes.append("No trajectories were recorded; train with record=true to have them.")
    return notes
