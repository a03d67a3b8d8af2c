"""`rubricem eval table1` and `table2`: the paper's subsets and choices, one budget, beside the paper's rows."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.command import INCOMPLETE
from rubricem_agent.cli.main import app
from rubricem_agent.evals.paper_tables import paper_rows
from rubricem_agent.evals.subsets import published_rows
from rubricem_agent.evals.suite import PAPER, SUITE, rules_for
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.eval_tables import spent_in, within_budget
from rubricem_env.domain.errors import ConfigError, UsageError
from tests.rubricem_agent.evals.run.conftest import PROMPT, files_of

NAMES = {1: PAPER[:4], 2: PAPER[4:]}


@pytest.fixture
def command(tmp_path, judge_url):
    """The words of a table's command on the synthetic files, with the loopback judge."""

    def make(table: int, *more: str) -> list[str]:
        words = ["eval", f"table{table}", "--any-version", "--no-probe", "--judge", f"openai:{PROMPT}@{judge_url}"]
        for name in NAMES[table]:
            data, criteria, references = files_of(name, tmp_path)
            words += ["--data", f"{name}={data}"]
            words += ["--criteria", str(criteria), "--references", str(references)] if criteria else []
        return [*words, "--tools", "offline", "--limit", "2", "--out", str(tmp_path / "out"), *more]

    return make


def invoke(words: list[str]):
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize(("table", "paper"), [(1, "RubricEM-8B (RL, 1400 steps)"), (2, "DR Tulu-8B (RL, 1900 steps)")])
def test_a_table_runs_its_four_benchmarks_and_stands_among_the_papers_rows(command, judge_app, tmp_path, table, paper):
    done = invoke(command(table, "--json"))

    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)["table"]
    systems = [row[0] for row in shown["rows"]]
    assert paper in systems
    (own,) = [row for row in shown["rows"] if row[0].startswith("this run: scripted")]
    assert "-" not in own[1:6]
    assert own[5] == f"{sum(map(float, own[1:5])) / 4:.1f}" or abs(float(own[5]) - sum(map(float, own[1:5])) / 4) < 0.1
    averages = [float(row[5]) for row in shown["rows"] if row[5] != "-"]
    assert averages == sorted(averages, reverse=True)
    assert f"{SUITE[NAMES[table][0]].title}: paper*, own prompts, almanac, judge {PROMPT}, n 2 of 2" in own[6]
    asked = len(judge_app.asked)
    assert invoke(command(table, "--quiet")).exit_code == 0
    assert len(judge_app.asked) == asked  # resumed, and nothing was left


def test_one_budget_holds_for_all_runs_of_a_table(command, make_config, tmp_path):
    assert invoke(command(2, "--price", f"{PROMPT}=10,10", "--budget", "1000")).exit_code == 0
    prices = {PROMPT: (10, 10)}
    first, second = (
        plan_run(make_config(name, policy="scripted", budget=1.0, prices=prices, out=tmp_path / "out" / name))
        for name in ("simpleqa", "twowiki")
    )
    spent = [spent_in(planned.config.folder) for planned in (first, second)]
    assert min(spent) > 0

    # Each run counts what it has cost itself; of the others' cost the budget is reduced.
    assert within_budget(first, [first, second]).config.budget == 1.0 - spent[1]
    small = first._replace(config=first.config.model_copy(update={"budget": spent[1]}))
    assert within_budget(small, [small, second]) is None
    stopped = invoke(command(2, "--price", f"{PROMPT}=10,10", "--budget", str(spent[1])))
    assert stopped.exit_code == INCOMPLETE
    assert "is used up before SimpleQA: run the same command with a larger --budget" in stopped.stderr


def test_a_table_without_tools_or_files_is_refused_before_the_first_call(command, judge_app, tmp_path):
    words = command(1)
    at = words.index("--tools")
    refused = invoke([*words[:at], *words[at + 2 :]]).exception
    assert isinstance(refused, UsageError)
    assert "no tools are named" in str(refused)
    refused = invoke(["eval", "table2", "--tools", "web"]).exception
    assert isinstance(refused, ConfigError)
    assert "needs the files of simpleqa (openaipublic" in str(refused)
    for wrong in ("nosuch=x", "simpleqa", "simpleqa="):
        assert "write BENCHMARK=FILE" in str(invoke(["eval", "table2", "--data", wrong]).exception)
    assert "simpleqa, which is not in table 1" in str(invoke(command(1, "--data", "simpleqa=x")).exception)
    assert judge_app.asked == []


def test_the_dry_run_of_a_table_adds_its_runs_up(command, judge_app, tmp_path):
    done = invoke(command(2, "--dry-run", "--json"))
    assert [run["benchmark"] for run in json.loads(done.stdout)["runs"]] == list(NAMES[2])
    assert judge_app.asked == []
    assert not (tmp_path / "out").exists()


def test_a_judge_may_be_named_for_one_benchmark_of_a_table(command, tmp_path, judge_url):
    done = invoke(command(2, "--judge", f"twowiki=openai:other@{judge_url}"))
    assert done.exit_code == 0, done.output
    judges = {
        name: json.loads((tmp_path / "out" / name / "run.json").read_text())["judges"][0].split("@")[0]
        for name in NAMES[2]
    }
    assert judges == {**dict.fromkeys(NAMES[2], f"openai:{PROMPT}"), "twowiki": "openai:other"}


def test_the_rows_are_those_of_the_code_and_of_the_paper():
    # Appendix F.2: 1,000, 756, 100, 101; 1,000, 1,000, 680, 900.
    rows = list(paper_rows())
    assert [row.benchmark for row in rows] == list(PAPER)
    assert [row.choice.examples for row in rows] == [1_000, 756, 100, 101, 1_000, 1_000, 680, 900]
    assert [row.table for row in rows] == [1] * 4 + [2] * 4
    for row in rows:
        size = rules_for(row.benchmark, "paper").size
        assert row.choice.examples == (row.choice.of if size is None else size)
        assert (size is None) == (row.choice.examples == row.choice.of)


def test_mode_paper_takes_its_own_subset_unless_another_is_asked_for(make_config, tmp_path):
    rules = rules_for("healthbench", "paper")
    assert (rules.size, rules.sampling, rules.judge) == (1_000, "drtulu", "gpt-4.1-2025-04-14")
    rows = [f"{number},Q{number}?,A{number}" for number in range(1_200)]
    data = tmp_path / "simpleqa.csv"
    data.write_text("\n".join(["metadata,problem,answer", *(f'"{{}}",{row.split(",", 1)[1]}' for row in rows)]) + "\n")
    given = {"data": str(data), "policy": "scripted"}
    planned = plan_run(make_config("simpleqa", "paper", **given)).manifest.inputs
    assert planned.ids == tuple(map(str, published_rows("drtulu", 1_200, 1_000)))
    assert planned.subset == "shuffled with seed 42, first 1000"
    assert len(plan_run(make_config("simpleqa", "paper", limit=5, **given)).manifest.inputs.ids) == 5
    assert len(plan_run(make_config("simpleqa", "paper", subset="ablation", **given)).manifest.inputs.ids) == 100


def test_mode_paper_judges_2wiki_by_a_model_and_the_official_mode_does_not():
    assert rules_for("twowiki", "paper").judge == "gpt-4.1-2025-04-14"
    assert rules_for("twowiki", "official").judge == ""
    with pytest.raises(ConfigError, match="the paper did not run draco, so that it has no mode paper"):
        rules_for("draco", "paper")


def test_the_guidance_of_ours_is_off_unless_asked_for_and_stands_in_the_manifest(run, make_config, tmp_path):
    assert plan_run(make_config("researchqa", policy="scripted")).manifest.agent.guidance == ""
    config = make_config("researchqa", policy="scripted", guidance=True, limit=1)
    assert run(config).scores.manifest.agent.guidance == "Answer in about 250 words, with citations."
    with pytest.raises(UsageError, match="the agent's guidance"):
        run(make_config("researchqa", policy="scripted", limit=1))
    (answer,) = Path(tmp_path / "run" / "answers.jsonl").read_text().splitlines()
    assert "Answer in about 250 words" in answer


def test_the_sampling_of_dr_tulu_has_a_name():
    config = EvalConfig(benchmark="almanac", policy="openai:m@http://127.0.0.1:9/v1", sampling_of="drtulu")
    assert plan_run(config).manifest.agent.sampling.temperature == 0.7
    mixed = config.model_copy(update={"sampling": config.sampling.model_copy(update={"temperature": 0.3})})
    with pytest.raises(ConfigError, match="--sampling-of drtulu names the sampling; leave --temperature"):
        plan_run(mixed)
