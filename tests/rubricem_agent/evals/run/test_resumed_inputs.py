"""What a run has read stands by content: nothing of it may change under a resumed run, and old runs may be resumed."""

import itertools
import json
from pathlib import Path

import pytest

from rubricem_agent.config.bank import BankConfig
from rubricem_agent.evals.resumed_run import refuse_difference
from rubricem_agent.prompting import AGENT_PROMPTS, SHIPPED_PROMPTS
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.input_hashes import bank_sha256, prompts_sha256, search_sha256
from rubricem_agent.wiring.memory import build_bank
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.reflection import Reflection
from rubricem_env.domain.trajectory import query_key
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelServer
from rubricem_env.tools.render import estimate_tokens
from rubricem_records.rollouts.sampling import Sampling


def given(path: Path, answers: dict[int, str]) -> str:
    path.write_text("".join(json.dumps({"id": number, "answer": answer}) + "\n" for number, answer in answers.items()))
    return f"file:{path}"


def corpus(path: Path, text: str) -> Path:
    path.write_text(json.dumps({"id": "d1", "title": "t", "url": "https://x.example/1", "text": text}) + "\n")
    return path


def tools(folder: Path, *, text: str = "The Tall Fox is 60 m wide.", more: str = "") -> str:
    path = folder / "tools.toml"
    path.write_text(f'corpus = "{corpus(folder / "corpus.jsonl", text)}"\n{more}')
    return str(path)


def test_an_answer_that_was_corrected_in_place_is_not_mixed_with_the_old_ones(run, make_config, tmp_path):
    answers = dict.fromkeys(range(7), "yes")
    run(make_config("simpleqa", policy=given(tmp_path / "a.jsonl", answers)))

    corrected = given(tmp_path / "a.jsonl", {**answers, 3: "no", 7: "yes"})

    with pytest.raises(UsageError, match=r"a\.jsonl has changed .* example 3 was yes and is now no.*another --out"):
        run(make_config("simpleqa", policy=corrected))
    assert (tmp_path / "run" / "answers.jsonl").read_text().count('"id":"7"') == 1


def test_an_answer_that_was_missing_is_taken_from_the_longer_file(run, make_config, tmp_path):
    answers = dict.fromkeys(range(7), "yes")
    first = run(make_config("simpleqa", policy=given(tmp_path / "a.jsonl", answers)))
    assert (first.scores.answered, first.scores.is_complete) == (7, False)

    again = run(make_config("simpleqa", policy=given(tmp_path / "a.jsonl", {**answers, 7: "yes"})))

    assert (again.runner.answered, again.scores.is_complete) == (1, True)


def test_own_prompts_of_the_policy_are_recorded_and_a_run_is_not_resumed_with_others(run, tmp_path):
    folder = tmp_path / "prompts"
    folder.mkdir()
    for name in AGENT_PROMPTS:
        (folder / f"{name}.md").write_text(SHIPPED_PROMPTS[name].text, encoding="utf-8")
    config = EvalConfig(benchmark="almanac", limit=1, out=tmp_path / "run", agent_prompts=folder)
    first = run(config)
    assert first.scores.manifest.agent.prompts_sha256 == prompts_sha256(folder)

    (folder / "format_exact.md").write_text("Briefly.", encoding="utf-8")
    with pytest.raises(UsageError, match="the agent's prompts_sha256"):
        run(config)
    (folder / "format_exact.md").unlink()
    with pytest.raises(ConfigError, match=r"has no format_exact\.md"):
        run(config)


def test_a_run_is_not_resumed_over_another_corpus(run, tmp_path):
    run(EvalConfig(benchmark="almanac", limit=1, tools=tools(tmp_path), out=tmp_path / "run"))

    changed = tools(tmp_path, text="The Tall Fox is 90 m wide.")

    with pytest.raises(UsageError, match=r"a search \(the settings of --tools .*\) of sha256 .* refusing to resume"):
        run(EvalConfig(benchmark="almanac", limit=1, tools=changed, out=tmp_path / "run"))


def test_budgets_and_rates_of_the_tools_may_change_and_what_they_find_may_not(tmp_path):
    first = search_sha256(tools(tmp_path))

    assert (
        search_sha256(tools(tmp_path, more="timeout = 5.0\n[budget]\ncalls = 9\n[cache]\nenabled = false\n")) == first
    )
    web = 'backend = "web"\n[google_search]\n'
    assert search_sha256(tools(tmp_path, more=f'{web}model = "one"\n')) != search_sha256(
        tools(tmp_path, more=f'{web}model = "other"\n')
    )


def test_a_corpus_that_is_not_there_is_refused_before_anything_is_asked(tmp_path):
    path = tmp_path / "tools.toml"
    path.write_text('corpus = "nowhere.jsonl"\n')

    with pytest.raises(ConfigError, match=r"corpus of .*tools\.toml cannot be read: .*nowhere\.jsonl"):
        plan_run(EvalConfig(benchmark="almanac", tools=str(path)))


def lesson(question: str) -> Reflection:
    return Reflection(
        query_key=query_key(question),
        question=question,
        rubrics="States the width with its unit and the season in which it was measured.",
        takeaways="Look for the convention of the domain before the figures, since the figures depend on it.",
    )


def test_a_bank_that_has_learned_since_is_another_bank(run, tmp_path):
    pytest.importorskip("chromadb", reason="the extra `bank` is not installed")
    bank = build_bank(BankConfig(folder=tmp_path / "bank", embedder="hashing"))
    bank.write(lesson("How wide is the river Calm Otter?"))
    config = EvalConfig(benchmark="almanac", limit=1, reuse="cross", bank=tmp_path / "bank", out=tmp_path / "run")
    before = bank_sha256(tmp_path / "bank")
    run(config)
    assert bank_sha256(tmp_path / "bank") == before

    bank.write(lesson("How wide is the river Amber Badger?"))

    with pytest.raises(UsageError, match=r"a bank \(the lessons in --bank\) of sha256"):
        run(config)


def test_a_part_of_another_run_is_not_taken_over(run, make_config, tmp_path):
    run(make_config("simpleqa", shard=(1, 2), policy=given(tmp_path / "a.jsonl", dict.fromkeys(range(8), "yes"))))

    with pytest.raises(UsageError, match=r"1-of-2 holds a run with the agent's policy"):
        run(make_config("simpleqa", policy=given(tmp_path / "b.jsonl", dict.fromkeys(range(8), "no"))))


def test_weights_that_were_changed_in_place_are_another_policy(make_config, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"first")
    config = make_config("simpleqa", policy=f"local:{folder}")
    before = plan_run(config).manifest
    (folder / "README.md").write_text("Notes are no weights.")
    assert plan_run(config).manifest.agent == before.agent

    (folder / "model.safetensors").write_bytes(b"other")

    with pytest.raises(UsageError, match=r"holds a run with a policy .* of sha256"):
        refuse_difference(tmp_path, before, wanted=plan_run(config).manifest)
    judging = plan_run(config.model_copy(update={"stage": "verdicts"})).manifest
    refuse_difference(tmp_path, before, wanted=judging)


def test_the_answers_of_a_model_are_judged_in_a_second_stage(run, tmp_path):
    app = ModelServer(lambda asked: "<think>so</think><answer>60 m</answer>")
    with serve_loopback(app) as url:
        config = EvalConfig(benchmark="almanac", policy=f"openai:p@{url}/v1", limit=1, out=tmp_path)
        run(config.model_copy(update={"stage": "answers"}))

        finished = run(config.model_copy(update={"stage": "verdicts"}))

    assert finished.scores.is_complete
    assert finished.runner.answered == 0


def test_how_a_policy_samples_is_an_option_sent_to_the_server_and_stands_in_the_manifest(run, tmp_path):
    app = ModelServer(lambda asked: "<think>so</think><answer>60 m</answer>")
    with serve_loopback(app) as url:
        sampling = Sampling(temperature=0.25, top_p=0.5, max_turn_tokens=77)
        config = EvalConfig(benchmark="almanac", policy=f"openai:p@{url}/v1", limit=1, out=tmp_path, sampling=sampling)
        run(config)

        body = app.asked[-1].body
        assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.25, 0.5, 77)
        assert json.loads((tmp_path / "run.json").read_text())["agent"]["sampling"] == sampling.model_dump()
        other = config.model_copy(update={"sampling": Sampling(temperature=0)})
        with pytest.raises(
            UsageError, match=r"the sampling temperature=0\.25 .* refusing to resume with temperature=0\.0"
        ):
            run(other)
        judged = config.model_copy(update={"answers_from": tmp_path, "sampling": Sampling(temperature=0)})
        with pytest.raises(ConfigError, match=r"--temperature is 0\.0; the answers of .* were made with 0\.25"):
            plan_run(judged)


def test_a_policy_that_draws_no_tokens_says_so_and_one_that_records_them_refuses_top_p(tmp_path):
    config = EvalConfig(benchmark="almanac", limit=1, out=tmp_path, sampling=Sampling(top_p=0.5))

    assert "--top-p" in plan_run(config).notes()[0]
    assert plan_run(config).manifest.agent.sampling is None
    with pytest.raises(ConfigError, match=r"--top-p is 0\.5; local:model records its tokens"):
        plan_run(config.model_copy(update={"policy": "local:model"}))


def test_the_length_of_an_episode_and_of_its_context_stand_in_the_manifest_beside_the_number(run, tmp_path):
    numbers = itertools.count()
    call = '<state_evaluation>s</state_evaluation><call_tool name="google_search">Tall Fox</call_tool>'
    app = ModelServer(lambda asked: call if next(numbers) < 40 else "<think>so</think><answer>60 m</answer>")
    limits = EpisodeLimits(max_calls=60, max_turns=62, max_tokens=100_000)
    context = ContextLimits(fold_at=6_000, fold_to=4_500, keep=1)
    with serve_loopback(app) as url:
        config = EvalConfig(
            benchmark="almanac", policy=f"openai:p@{url}/v1", limit=1, out=tmp_path, limits=limits, context=context
        )
        finished = run(config)

        sent = [sum(estimate_tokens(message["content"]) for message in asked.body["messages"]) for asked in app.asked]
        assert (len(sent), max(sent) <= 6_000) == (41, True)
        manifest = json.loads((tmp_path / "run.json").read_text())["agent"]
        assert (manifest["limits"], manifest["context"]) == (limits.model_dump(), context.model_dump())
        assert finished.scores.manifest.label.endswith("60 calls, folded context")
        for other in ({"context": ContextLimits()}, {"limits": EpisodeLimits()}):
            with pytest.raises(UsageError, match=rf"the agent's {next(iter(other))} .* refusing to resume with"):
                run(config.model_copy(update=other))
        judged = config.model_copy(update={"answers_from": tmp_path, "context": ContextLimits(fold_at=9_000)})
        with pytest.raises(ConfigError, match=r"--fold-at is 9000; the answers of .* were made with 6000"):
            plan_run(judged)


def test_a_manifest_of_the_usual_length_does_not_name_it(run, make_config, tmp_path):
    run(make_config("simpleqa"))
    assert {"limits", "context"}.isdisjoint(json.loads((tmp_path / "run" / "run.json").read_text())["agent"])
