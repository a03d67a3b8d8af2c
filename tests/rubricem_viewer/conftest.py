"""Recorded runs made by hand, and the viewer's server over them."""

import json
from contextlib import ExitStack
from functools import cached_property
from types import SimpleNamespace

import httpx2
import pytest

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.wiring.viewer import RecordedSearch
from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.judgement import Judgement, RubricScore, StageScore, Unscored
from rubricem_env.domain.reflection import Reflection, ReflectionScore
from rubricem_env.domain.trajectory import query_key
from rubricem_env.judge.judgements import RolloutJudgement
from rubricem_env.judge.rubrics.rubric_set import ActiveRubric, RetiredRubric
from rubricem_env.testing.judges import attempt
from rubricem_env.testing.loopback import serve_loopback
from rubricem_records.rollouts.packed_tokens import pack_tokens
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry, ShownLesson
from rubricem_records.rollouts.run_recorder import RunRecorder
from rubricem_viewer.server import make_app
from rubricem_viewer.shelf import RunShelf
from tests.fakes import rubric

TOKEN = "the-token"
NAMES = [str(stage) for stage in STAGES]


class Recording:
    """A training run in a folder, written as a trainer writes it."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.recorder = RunRecorder(folder / "record")
        self.recorder.begin(0, embedder=HashingEmbedder().name)
        self.settings({"credit": "stages", "meta_policy": True, "steps": 2, "seed": 0})
        self.log()

    def settings(self, fields):
        (self.folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")

    def log(self, steps=2, held_out_by="truth", **more):
        lines = [
            {"step": 0, "held_out": dict.fromkeys(NAMES, 0.25), "valid": 1.0, "by": held_out_by},
            *(
                {
                    "step": step,
                    "encounter": "new",
                    "true": dict.fromkeys(NAMES, 0.5),
                    "judged": {**dict.fromkeys(NAMES, 0.4), "review": None},
                    "bank": step,
                    "seconds": {"sample": 1.0},
                    **more,
                }
                for step in range(1, steps + 1)
            ),
        ]
        (self.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def add(self, step=1, place=0, *, scores=(0.0, 0.5, 1.0), question="Which is wider?", **more):
        """A group of one attempt for each score, which is that of every stage."""
        fields = {"judge": "almanac", "rubrics": (RUBRIC,), "active": (kept(RUBRIC, step),), **more.pop("group", {})}
        key = query_key(question)
        group = GroupEntry(step=step, place=place, encounter="new", query_key=key, question=question, **fields)
        each = more.pop("trajectories", (None,) * len(scores))
        entries = [
            entry(step, place, number, score, **({"trajectory": own} | more))
            for number, (score, own) in enumerate(zip(scores, each, strict=True))
        ]
        self.recorder.record_step([(group, entries)])
        return self

    def add_lessons(self, *questions, step=1, takeaways="Search first."):
        """A lesson for each question, in the record and in a bank that is given back."""
        bank = RubricBank.in_memory(HashingEmbedder())
        for question in questions:
            bank.write(lesson(question, takeaways))
        self.recorder.record_lessons(bank.contents(), step=step)
        return bank


RUBRIC = rubric("The answer names the wider river.")


def kept(one, step, variance=0.5):
    return ActiveRubric(rubric=one, created_step=step, last_step=step, variance=variance)


def dropped(one, step, reason="separates_nothing"):
    return RetiredRubric(last=kept(one, 1, 0.0), reason=reason, retired_step=step)


def shown(item, similarity=0.5):
    return ShownLesson(item=item, similarity=similarity, attempts=(0, 1, 2, 3))


def lesson(question, takeaways="Search first."):
    return Reflection(
        query_key=query_key(question),
        question=question,
        rubrics="The answer has both figures.",
        takeaways=takeaways,
        score=ReflectionScore(diagnosis=0.5, specificity=0.5, scope=0.5),
    )


def entry(step, place, number, score, *, trajectory=None, reason="", rubric_score=1, failure="", tokens=True):
    """One attempt; a score of None is a judge's failure at the review."""
    outcomes = {stage: StageScore(score=0.5 if score is None else score) for stage in STAGES}
    if score is None:
        outcomes[Stage.REVIEW] = Unscored(reason="judge_failed", detail="no reply")
    return RolloutEntry(
        step=step,
        place=place,
        attempt=number,
        rollout=Rollout(trajectory=trajectory or attempt(), policy="scripted", failure=failure),
        tokens=pack_tokens(TOKENS if tokens is True else tokens) if tokens else None,
        judged=RolloutJudgement(
            judgement=Judgement.of(outcomes), rubric_scores=(RubricScore.whole(RUBRIC.id, rubric_score, reason),)
        ),
        true=(0.0, 0.25, 0.5, 1.0),
        returns=(2.8, 2.2, 1.8, 1.0),
        advantages=(-1.0, 0.0, 0.5, 1.0),
        trained=True,
    )


TOKENS = RolloutTokens(
    ids=(0, 1, 2, 3, 1, 2, 99),
    stage_ids=(-1, -1, 0, 1, 2, 3, -1),
    logprobs=(0.0, 0.0, -0.5, -1.0, -0.25, -0.125, 0.0),
    prompt_length=2,
)
"""Two tokens of the prompt, one of each stage, one of a tool."""


@pytest.fixture
def recording(tmp_path):
    return Recording(tmp_path / "run")


class Served:
    """The viewer's server over a folder, started at the first request; a call asks for a path of its first run.

    `bank` is what lies in the folder that --bank names.
    """

    def __init__(self, folder, stack):
        self.folder, self.bank, self._stack = folder, None, stack

    @cached_property
    def client(self):
        """Knows the token."""
        bank = self.folder if self.bank is not None else None
        shelf = RunShelf(self.folder, lambda folder: self.bank, bank=bank, make_search=RecordedSearch)
        address = self._stack.enter_context(serve_loopback(make_app(shelf, token=TOKEN)))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return self._stack.enter_context(httpx2.Client(base_url=address, headers=headers, timeout=60))

    @property
    def cards(self):
        return {card["name"]: card for card in self.client.get("/api/runs").json()["runs"]}

    @cached_property
    def run(self):
        return next(iter(self.cards.values()))["id"]

    def __call__(self, path, expect=200, **params):
        answer = self.client.get(f"/api/runs/{self.run}{path}", params=params)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def post(self, path, **fields):
        return self.client.post(f"/api/runs/{self.run}{path}", json=fields)


@pytest.fixture
def serve():
    """Serve a folder until the test ends."""
    with ExitStack() as stack:
        yield lambda folder: Served(folder, stack)


@pytest.fixture
def get(recording, serve):
    """The recording, served; a test writes first."""
    return serve(recording.folder)


@pytest.fixture
def made():
    """The makers of this file, for tests that build an entry themselves."""
    return SimpleNamespace(Recording=Recording, dropped=dropped, kept=kept, lesson=lesson, shown=shown)
