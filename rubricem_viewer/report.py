"""The report of a run as one HTML file."""

import time
from pathlib import Path

from rubricem_env.domain.errors import FileFormatError, boundary
from rubricem_viewer.ablation import load_ablation
from rubricem_viewer.api.figures import Comparison
from rubricem_viewer.api.runs import RunList
from rubricem_viewer.curves import make_figures
from rubricem_viewer.refusals import UnreadableRunError
from rubricem_viewer.run_cards import make_card, make_detail
from rubricem_viewer.run_folder import RunFolder, kind_of
from rubricem_viewer.samples import Answers, sample_bank, sample_evaluation, sample_record
from rubricem_viewer.single_file import make_file


def render_report(folder: Path) -> str:
    """The page of a folder; of a training run from the first line of its log on.

    Raises:
        FileFormatError, UnreadableRunError: the folder holds no run, or it cannot be read.
    """
    kind = kind_of(folder)
    if kind is None:
        raise FileFormatError(
            f"{folder} holds neither a run nor an ablation, so it is no run's folder. Give the folder that the config "
            "names as `out`, after the first step, or that of `rubricem eval`."
        )
    run = RunFolder(folder, kind, run_id="run", name=folder.resolve().name)
    with boundary(UnreadableRunError, f"read the run {run.name}"):
        if kind == "training":
            curves: Answers = {f"/runs/{run.id}/curves": Comparison(figures=make_figures(run.read()))}
            answers = curves | sample_record(run) | sample_bank(run)
        elif kind == "evaluation":
            answers = sample_evaluation(run)
        else:
            answers = {f"/runs/{run.id}/ablation": load_ablation(run.folder)}
        card = make_card(run)
        if card.problem:
            raise FileFormatError(card.problem)
        first: Answers = {"/runs": RunList(runs=(card,)), f"/runs/{run.id}": make_detail(run, card)}
        return make_file(card.title or card.name, {**first, **answers}, made=time.strftime("%Y-%m-%d"))
