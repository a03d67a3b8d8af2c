"""A report as one HTML file that opens from disk: script, style and the server's answers are inside it.

Of a training run it shows a sample whose size does not grow with the run. The sample takes the questions with the most
steps between their first and their last group; an attempt that would make the file too large is left out. The script
and the style are built from `web` by `make viewer-bundle`.
"""

import base64
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import TypeVar

from pydantic import BaseModel

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError, boundary
from rubricem_viewer.ablation import load_ablation
from rubricem_viewer.api import Comparison, GroupView, RunList, TrajectoryPage, TrajectoryRow
from rubricem_viewer.bank import BankFilter, BankViews
from rubricem_viewer.curves import make_figures
from rubricem_viewer.evaluations import ExampleFilter, view_evaluation, view_example, view_examples
from rubricem_viewer.groups import list_questions, list_tokens, view_attempt, view_group, view_history
from rubricem_viewer.records import MAX_SIZE, PageFilter, UnreadableRunError
from rubricem_viewer.runs import RunFolder, kind_of, make_card, make_detail

QUESTIONS, LESSONS = 8, 40
TOKEN_VIEWS, TOKENS = 8, 2_000
"""How many attempts are shown as tokens too, and how many tokens of each."""
LARGEST, ROOM = 300_000, 4_000_000
"""Characters of one attempt as JSON, and of all together."""

RowT = TypeVar("RowT", bound=Frozen)
ViewT = TypeVar("ViewT", bound=Frozen)
Answers = dict[str, Frozen]
"""By path, as the contract in `rubricem_viewer.api` names them."""


def fitting(views: Iterable[tuple[RowT, ViewT]]) -> Iterator[tuple[RowT, ViewT]]:
    """The views for which there is room, with their rows; what is too long is left out."""
    room = ROOM
    for row, view in views:
        size = len(view.model_dump_json())
        if size <= min(LARGEST, room):
            room -= size
            yield row, view


def sample_record(run: RunFolder) -> Answers:
    """Questions, rubrics, groups and attempts of a run; nothing where nothing was recorded."""
    run.record.refresh()
    if not run.record.groups:
        return {}
    page = list_questions(run, PageFilter(size=MAX_SIZE))
    chosen = sorted(page.rows, key=lambda question: question.steps[-1] - question.steps[0], reverse=True)[:QUESTIONS]
    base = f"/runs/{run.id}"
    answers: Answers = {f"{base}/questions": page.model_copy(update={"rows": tuple(chosen)})}
    groups: list[GroupView] = []
    for question in chosen:
        history = view_history(run, question.key)
        answers[f"{base}/questions/{question.key}"] = history
        groups += [view_group(run, one) for one in dict.fromkeys((history.steps[0].group, history.steps[-1].group))]
    answers |= {f"{base}/groups/{group.id}": group for group in groups}
    rows: list[TrajectoryRow] = []
    attempts = (rollout.row for group in groups for rollout in group.rollouts)
    for row, view in fitting((row, view_attempt(run, row.id)) for row in attempts):
        answers[f"{base}/trajectories/{row.id}"] = view
        if len(rows) < TOKEN_VIEWS:
            answers[f"{base}/trajectories/{row.id}/tokens"] = list_tokens(run, row.id, offset=0, limit=TOKENS)
        rows.append(row)
    answers[f"{base}/trajectories"] = TrajectoryPage(
        total=len(run.record.table.rows), matched=len(rows), page=1, size=max(1, len(rows)), rows=tuple(rows)
    )
    return answers


def sample_bank(run: RunFolder) -> Answers:
    """The newest active lessons of a run; nothing where it has no bank."""
    bank = run.bank.open()
    if bank is None:
        return {}
    views = BankViews(bank, run.record, run.bank)
    page = views.page(BankFilter(size=LESSONS, status="active"))
    base = f"/runs/{run.id}/bank"
    return {base: page, **{f"{base}/{row.id}": views.item(row.id) for row in page.rows}}


STATIC = Path(__file__).parent / "static"


@cache
def load_bundle() -> tuple[str, str]:
    """The script and the style that this release ships."""
    script, style = ((STATIC / name).read_text(encoding="utf-8") for name in ("viewer.js", "viewer.css"))
    return script, style


def security_policy(script: str, style: str) -> str:
    """A content security policy that allows this script and this style and nothing else."""
    return (
        f"default-src 'none'; script-src '{source_hash(script)}'; style-src '{source_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def source_hash(text: str) -> str:
    """The name under which a content security policy lets an inline script or style in."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_INERT = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
"""Inside a script element only JSON's own characters stand: no text of a run can end the element or begin another."""


def make_file(title: str, answers: Mapping[str, BaseModel], *, made: str) -> str:
    """A page that shows `answers`, which are those of the server by path; `made` says of what and when."""
    recorded = {"made": made, "answers": {path: answer.model_dump(mode="json") for path, answer in answers.items()}}
    script, style = load_bundle()
    return Template((Path(__file__).parent / "report.html").read_text(encoding="utf-8")).substitute(
        policy=security_policy(script, style),
        title=escape(title),
        style=style,
        recorded=inert_json(recorded),
        script=script,
    )


def inert_json(value: object) -> str:
    """JSON that is nothing but JSON inside a script element.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_INERT)


EXAMPLES = 40


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


def sample_evaluation(run: RunFolder) -> Answers:
    """The numbers, and the examples on which judges differ most; what is too long is left out."""
    base = f"/runs/{run.id}/evaluation"
    page = view_examples(run, ExampleFilter(size=EXAMPLES, sort="disagreement"))
    views = list(fitting((row, view_example(run, row.id)) for row in page.rows))
    listed = page.model_copy(update={"rows": tuple(row for row, _ in views)})
    examples: Answers = {f"{base}/examples/{row.id}": view for row, view in views}
    return {base: view_evaluation(run), f"{base}/examples": listed, **examples}
