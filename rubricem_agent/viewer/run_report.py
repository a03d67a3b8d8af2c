"""The report: a run, an evaluation or an ablation as one file, with the answers that the server would give."""

import time
from pathlib import Path

from rubricem_agent.viewer.ablation import Ablation
from rubricem_agent.viewer.ablation_report import load_ablation
from rubricem_agent.viewer.api_models.runs import Alarm, Curves, RunCard, RunDetail, RunList
from rubricem_agent.viewer.curve_figures import make_figures
from rubricem_agent.viewer.evaluation_view import view_evaluation
from rubricem_agent.viewer.example_views import view_example, view_examples
from rubricem_agent.viewer.one_file import make_file
from rubricem_agent.viewer.report_sample import ROOM, Answers, Room, sample_bank, sample_record
from rubricem_agent.viewer.run_card import make_card
from rubricem_agent.viewer.run_folder import RunFolder, kind_of
from rubricem_env.domain.errors import FileFormatError

EXAMPLES = 40


def render_report(folder: Path) -> str:
    """The page of a folder; of a training run from the first line of its log on.

    Raises:
        FileFormatError: the folder holds no run, or it cannot be read.
    """
    kind = kind_of(folder)
    if kind is None:
        raise FileFormatError(
            f"{folder} holds neither a run nor an ablation, so it is no run's folder. Give the folder that the config "
            "names as `out`, after the first step, or that of `rubricem eval`."
        )
    run = RunFolder(folder, kind, run_id="run", name=folder.resolve().name)
    answers = _training(run) if kind == "training" else _evaluation(run) if kind == "evaluation" else _ablation(run)
    card = make_card(run)
    if card.problem:
        raise FileFormatError(card.problem)
    return _file(run, card, answers)


def _file(run: RunFolder, card: RunCard, answers: Answers) -> str:
    read = run.read() if run.kind == "training" else None
    detail = RunDetail(
        card=card,
        settings=read.settings if read else {},
        alarms=tuple(Alarm(step=line.step, message=line.alarm) for line in read.log.alarms) if read else (),
        notes=(),
    )
    first: Answers = {"/runs": RunList(runs=(card,)), f"/runs/{run.id}": detail}
    return make_file(card.title or card.name, {**first, **answers}, made=time.strftime("%Y-%m-%d"))


def _training(run: RunFolder) -> Answers:
    curves: Answers = {f"/runs/{run.id}/curves": Curves(figures=make_figures(run.read()))}
    return curves | sample_record(run) | sample_bank(run)


def _evaluation(run: RunFolder) -> Answers:
    """The numbers, and the examples on which judges differ most; what is too long is left out."""
    base = f"/runs/{run.id}/evaluation"
    page = view_examples(run, number=1, size=EXAMPLES, text="", sort="disagreement")
    answers: Answers = {base: view_evaluation(run)}
    room, rows = Room(ROOM), []
    for row in page.rows:
        view = view_example(run, row.id)
        after = room.takes(view)
        if after is not None:
            room = after
            rows.append(row)
            answers[f"{base}/examples/{row.id}"] = view
    answers[f"{base}/examples"] = page.model_copy(update={"rows": tuple(rows)})
    return answers


def _ablation(run: RunFolder) -> Answers:
    found: Ablation = load_ablation(run.folder)
    return {f"/runs/{run.id}/ablation": found}
