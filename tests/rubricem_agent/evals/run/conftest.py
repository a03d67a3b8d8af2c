"""Synthetic benchmarks, given answers, and a judge on loopback whose verdicts can be added up by hand."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import FinishedRun, run_evaluation
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelRequest, ModelServer
from rubricem_records.evaluations.rules import EvaluationMode

SAMPLES = Path(__file__).parents[3] / "samples" / "benchmarks"
ARTICLE = "An invented article on an invented matter, long enough to count as one. " * 4
PROMPT = "judge-of-tests"

FILES = {
    "healthbench": "healthbench.synthetic.jsonl",
    "researchqa": "researchqa.synthetic.json",
    "researchrubrics": "researchrubrics.synthetic.jsonl",
    "simpleqa": "simpleqa.synthetic.csv",
    "twowiki": "twowiki.synthetic.json",
    "webwalkerqa": "webwalkerqa.synthetic.jsonl",
    "deepsearchqa": "deepsearchqa.synthetic.csv",
}

IDS = {
    "healthbench": [f"synthetic-{number:04d}" for number in range(8)],
    "researchqa": [f"synthetic-{number}-s{number}" for number in range(8)],
    "researchrubrics": [f"{number:024d}" for number in range(6)],
    "simpleqa": [str(number) for number in range(8)],
    "twowiki": [f"synthetic{number}" for number in range(6)],
    "webwalkerqa": [str(number) for number in range(8)],
    "deepsearchqa": [str(number) for number in range(8)],
    "drb": [str(number) for number in range(51, 57)],
}


def judge(asked: ModelRequest) -> str:
    """Verdicts by simple rules: the first criterion is met, even questions are right, single answers are complete."""
    prompt = asked.prompt
    if "criteria_met" in prompt:
        return json.dumps({"explanation": "so it is", "criteria_met": "] States fact 0" in prompt})
    if "Not at all" in prompt:
        return "\n".join(["Mostly"] * int(re.search(r"Write (\d+) lines", prompt)[1]))
    if "evidence_quotes" in prompt:
        is_met = "-0\nAxis" in prompt
        verdict = "Satisfied" if is_met else "Not Satisfied"
        return json.dumps({"verdict": verdict, "score": float(is_met), "confidence": 1.0})
    if "single letter A, B or C" in prompt:
        return "A" if re.search(r"Gold answer: Answer [02468]", prompt) else "B"
    if "correct: yes or no" in prompt:
        return "correct: yes" if "Ans B" in prompt else "correct: no"
    if "STUDENT ANSWER" in prompt:
        return "GRADE: CORRECT" if re.search(r"question [0246]\?", prompt) else "GRADE: INCORRECT"
    if "Excessive Answers" in prompt:
        excess = [] if "Single Answer" in prompt else ["Delta"]
        node = {"Explanation": "", "Correctness Details": {"Alpha": True}, "Excessive Answers": excess}
        return f"```json\n{json.dumps({'Answer Correctness': node})}\n```"
    if "Take all traces of citation out" in prompt:
        return ARTICLE
    return race_reply(prompt)


def race_reply(prompt: str) -> str:
    """6 against 4 for every criterion."""
    sections = re.split(r"^## (\w+)$", prompt.partition("<criteria>")[2].partition("</criteria>")[0], flags=re.M)
    entries = {
        name: [
            {"criterion": criterion, "article_1_score": 6, "article_2_score": 4}
            for criterion in re.findall(r"^- (.*)$", text, flags=re.M)
        ]
        for name, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    return json.dumps(entries)


@pytest.fixture(scope="session")
def served_judge() -> Iterator[tuple[ModelServer, str]]:
    app = ModelServer(judge)
    with serve_loopback(app) as url:
        yield app, f"{url}/v1"


@pytest.fixture
def judge_app(served_judge: tuple[ModelServer, str]) -> ModelServer:
    served_judge[0].asked.clear()
    return served_judge[0]


@pytest.fixture
def judge_url(served_judge: tuple[ModelServer, str]) -> str:
    return served_judge[1]


@pytest.fixture
def run() -> Callable[[EvalConfig], FinishedRun]:
    return lambda config: asyncio.run(run_evaluation(plan_run(config)))


@pytest.fixture
def make_config(tmp_path: Path, judge_url: str) -> Callable[..., EvalConfig]:
    """Settings of a run on the synthetic file, with given answers and the loopback judge."""

    def make(benchmark: str, mode: EvaluationMode = "official", **changes: object) -> EvalConfig:
        data, criteria, references = files_of(benchmark, tmp_path)
        given = {
            "benchmark": benchmark,
            "mode": mode,
            "data": str(data),
            "criteria": criteria,
            "references": references,
            "any_version": True,
            "policy": f"file:{answers_of(benchmark, tmp_path)}",
            "judges": (f"openai:{PROMPT}@{judge_url}",),
            "out": tmp_path / "run",
            "retry": RetryPolicy(attempts=1),
            "probe": False,
        }
        settings = {**given, **changes}
        if not str(settings["policy"]).startswith("file:") and "answers_from" not in changes:
            settings.setdefault("tools", "offline")
        return EvalConfig(**settings)

    return make


def files_of(benchmark: str, folder: Path) -> tuple[Path, Path | None, Path | None]:
    """The data file; for DeepResearchBench the tasks that have criteria, and reference articles."""
    if benchmark != "drb":
        return SAMPLES / FILES[benchmark], None, None
    lines = (SAMPLES / "drb.query.jsonl").read_text(encoding="utf-8").splitlines()
    queries = [line for line in lines if str(json.loads(line)["id"]) in IDS["drb"]]
    references = [{"id": int(number), "prompt": "p", "article": ARTICLE} for number in IDS["drb"]]
    return (
        write_lines(folder / "query.jsonl", queries),
        SAMPLES / "drb.criteria.jsonl",
        write_lines(folder / "reference.jsonl", map(json.dumps, references)),
    )


def answers_of(benchmark: str, folder: Path) -> Path:
    text = ARTICLE if benchmark == "drb" else "yes"
    rows = [json.dumps({"id": example_id, "answer": text}) for example_id in IDS[benchmark]]
    return write_lines(folder / "answers.given.jsonl", rows)


def write_lines(path: Path, lines: object) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
