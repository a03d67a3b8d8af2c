"""A run on veRL in other stages: its settings reach every node, an episode is played, and its group judged."""

import asyncio
import json
import shutil

import numpy as np
import pytest

from rubricem_env.domain.errors import ConfigError, JudgeError
from rubricem_env.domain.stage_set import read_stage_set, stage_set_folder
from rubricem_env.llm.usage import SpendLimitReached
from rubricem_records.rollouts.rollouts import Rollout
from tests.letters import BRIEF, LETTER
from tests.scaffolds import WRITING, attempt_of
from tests.trainers.verl_backend.fakes import FakeClient, FakeHandle
from tests.trainers.verl_backend.test_judge_service import identity, with_tokens
from tests.trainers.verl_backend.test_rollout import FakeService
from trainers.verl_backend.judge_service import JudgeService
from trainers.verl_backend.questions import load_training_questions
from trainers.verl_backend.reporting import stage_means
from trainers.verl_backend.rollout import EpisodeRunner
from trainers.verl_backend.rows import ScheduledQuery
from trainers.verl_backend.settings import read_section, shipped_stages


@pytest.fixture
def section(tmp_path):
    (tmp_path / "briefs.jsonl").write_text(BRIEF.model_dump_json() + "\n")
    return {
        "scaffold": "writing",
        "questions": str(tmp_path / "briefs.jsonl"),
        "tools": {"backend": "none"},
        "judge": {"judge": "rules"},
        "bank": {"embedder": "hashing"},
        "system": "Write.",
        "limits": {"max_tokens": 600},
        "meta_policy": False,
        "outage": {"patience": 0},
    }


def test_the_almanac_is_refused_in_other_stages(section):
    with pytest.raises(ConfigError, match="the questions of the almanac are of the stages plan, research"):
        read_section({**section, "questions": None, "almanac": {}})


def test_the_rubrics_of_the_questions_judge_the_last_stage(section):
    queries, truth = load_training_questions(read_section(section))

    assert [rubric.stage for query in queries.values() for rubric in query.rubrics] == ["final"]
    assert truth == {}


def test_a_set_of_ones_own_reaches_nodes_without_its_folder(section, tmp_path):
    own = tmp_path / "letters"
    shutil.copytree(stage_set_folder("writing"), own)
    (own / "agent.md").write_text("<!-- section: system -->\nWrite for ${who}.\n")
    settings = read_section({**section, "scaffold": str(own)})
    keys = shipped_stages(settings)
    expected = read_stage_set(str(own))
    shutil.rmtree(own)

    assert "$" not in json.dumps(keys)
    elsewhere = read_section({**section, "scaffold": str(own), **keys})
    assert elsewhere.stage_set == expected
    assert elsewhere.matrix == expected.matrix
    assert "shipped_stages" not in elsewhere.model_dump()
    assert shipped_stages(read_section(section)) == {}


async def test_an_episode_ends_at_the_sets_own_tag(section, model_folder, tokenizer):
    client, service = FakeClient(tokenizer, [LETTER]), FakeService()
    runner = EpisodeRunner(read_section(section), model=model_folder, max_length=4_096, service=FakeHandle(service))

    (row,) = await runner.run(
        ScheduledQuery(BRIEF, 1, "new"), group="g", index=0, step=1, client=client, temperature=1.0
    )

    assert client.params[0]["stop"] == ["</final>"]
    (rollout,) = service.submitted
    assert rollout.parsed.stages == WRITING.scaffold.names
    assert rollout.parsed.is_complete
    assert row["response_mask"]


async def test_an_analyst_is_told_the_users_tables(section, model_folder, tokenizer, tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.csv").write_text("id,price\n1,40\n")
    analysis = {
        **section,
        "scaffold": "data_analysis",
        "system": "",
        "tools": {"backend": "none", "tables": str(tmp_path / "shop")},
    }
    client = FakeClient(tokenizer, ["<think>t</think><report>40</report>"])
    runner = EpisodeRunner(
        read_section(analysis), model=model_folder, max_length=40_000, service=FakeHandle(FakeService())
    )
    await runner.run(ScheduledQuery(BRIEF, 1, "new"), group="g", index=0, step=1, client=client, temperature=1.0)
    assert "orders(id" in tokenizer.decode(client.prompts[0]).replace(" ", "")


async def test_a_failed_episode_keeps_its_stages(section, model_folder, tokenizer):
    service = FakeService(breaks=True)
    runner = EpisodeRunner(
        read_section({**section, "meta_policy": True}),
        model=model_folder,
        max_length=4_096,
        service=FakeHandle(service),
    )

    await runner.run(ScheduledQuery(BRIEF, 1, "new"), group="g", index=0, step=1, client=None, temperature=1.0)

    (rollout,) = service.submitted
    assert rollout.failure
    assert rollout.parsed.stages == WRITING.scaffold.names


def service_of(section, model_folder):
    return JudgeService(read_section(section), model=model_folder, group_size=2)


async def submit(service):
    query = next(iter(load_training_questions(service.settings)[0].values()))
    written = ("I decline the invitation to tea.", "")
    rollouts = [
        with_tokens(
            Rollout(trajectory=attempt_of(WRITING.scaffold, query.question, answer=text), policy="verl"), (0, 1, 2, 3)
        )
        for text in written
    ]
    scheduled = ScheduledQuery(query, 1, "new")
    calls = [service.submit(scheduled, one, group="g", index=index) for index, one in enumerate(rollouts)]
    return await asyncio.gather(*calls)


async def test_a_group_is_judged_credited_recorded_and_saved_in_its_stages(section, model_folder, tmp_path):
    service = service_of(section, model_folder)
    await service.begin_record(tmp_path / "run", 0)

    good, bad = await submit(service)

    assert good.max() > 0 > bad.min()
    report = await service.report(1, ["g"])
    assert list(report["judged"]) == list(WRITING.scaffold.names)
    await service.finish_record()
    first = (tmp_path / "run" / "record" / "rollouts.index.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["stages"] == list(WRITING.scaffold.names)
    assert identity(service)["rubricem.scaffold"] == "writing (outline, draft, revise, final)"


async def test_a_group_of_a_broken_judge_has_no_score_in_its_own_stages(section, model_folder, monkeypatch):
    service = service_of(section, model_folder)

    class Spent:
        async def judge_group(self, group, *, step):
            raise SpendLimitReached("the budget is used up")

        buffer = service.judge.buffer

    service.judge = Spent()
    await submit(service)

    (group,) = service._judged.values()
    assert group.rollouts[0].judged.judgement.stages == WRITING.scaffold.names
    with pytest.raises(JudgeError, match="used up"):
        await service.collect(1)


def test_the_metrics_of_a_step_name_the_sets_stages():
    found = stage_means(
        np.array([-1, 0, 2]), np.array([0.0, 1.0, 3.0]), entropy=np.ones(3), kl=np.zeros(3), names=("a", "b", "c")
    )

    assert found.keys() == {"a", "c"}
    assert found["c"]["loss_share"] == 0.75
