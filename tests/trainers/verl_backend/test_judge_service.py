"""The judge service judges complete groups, serves lessons, defers reflections to the next step and resumes."""

import asyncio
import hashlib
import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from rubricem_agent.learn.checkpoint import find_checkpoint, load_checkpoint
from rubricem_agent.learn.credit import CreditSettings
from rubricem_agent.learn.deferred import Ticket
from rubricem_agent.learn.samples import task_samples
from rubricem_agent.learn.step import credit_rollouts
from rubricem_env.domain.errors import ConfigError, JudgeError, UsageError
from rubricem_env.domain.trajectory import Ending
from rubricem_env.env.episode import Episode, Finished
from rubricem_env.env.step import advance
from rubricem_env.judge.base import Proposal
from rubricem_env.judge.group import Group
from rubricem_env.llm.usage import SpendLimitReached
from rubricem_env.world.offline import offline_queries, shipped_toolbox
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout
from tests.fakes import make_reflection
from tests.trainers.verl_backend.fakes import BrokenClient, FakeClient
from trainers.verl_backend.checkpoint import identity_of
from trainers.verl_backend.judge_service import JudgeService
from trainers.verl_backend.reporting import flat_metrics
from trainers.verl_backend.rows import ScheduledQuery
from trainers.verl_backend.settings import read_section

REFLECTION = (
    "<reflection_rubrics>Look for the convention.</reflection_rubrics>"
    "<reflection_takeaways>Give figures as the field does.</reflection_takeaways>"
)
SECTION = {
    "almanac": {},
    "window": 1,
    "bank": {"embedder": "hashing", "reference_tokens": 4_096},
    "reflection": {"num_candidates": 2, "total_tokens": 4_000, "new_tokens": 200},
    "time_limits": {"lesson": 5.0},
    "outage": {"patience": 0},
}
QUERY = offline_queries()[0]
NEW = ScheduledQuery(QUERY, 1, "new")
REPEAT = ScheduledQuery(QUERY, 2, "repeat")
ATTEMPTS = (
    "<think>t</think><answer>I do not know.</answer>",
    "<think>t</think><answer>The depth of Calm Bridge is 12 m.</answer>",
)


def make_service(model_folder, **changes) -> JudgeService:
    settings = read_section(SECTION | changes)
    return JudgeService(settings, model=model_folder, group_size=2)


async def attempt(text: str) -> Rollout:
    episode = Episode(QUERY)
    reply = await advance(episode, shipped_toolbox(), text)
    assert isinstance(reply, Finished)
    return Rollout(trajectory=episode.trajectory, policy="verl")


async def submit_group(service: JudgeService, scheduled: ScheduledQuery = NEW, *, group: str = "g"):
    rollouts = [await attempt(text) for text in ATTEMPTS]
    # From the last rollout of the group to the first.
    calls = [service.submit(scheduled, one, group=group, index=index) for index, one in enumerate(rollouts)]
    return await asyncio.gather(*reversed(calls))


async def reflected(service: JudgeService, tokenizer) -> None:
    await service.open(FakeClient(tokenizer, [REFLECTION], versions=(7,)))
    await submit_group(service)
    await service.drain()


def identity(service: JudgeService):
    config = SimpleNamespace(
        data=SimpleNamespace(train_batch_size=1),
        actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(n=2)),
        trainer=SimpleNamespace(nnodes=1, n_gpus_per_node=1),
    )
    return identity_of(config, service.settings)


async def save(service: JudgeService, folder, *, step: int = 1, held=(), stream=None):
    return await service.save(folder, step=step, held=held, stream=stream or {}, identity=identity(service))


def with_tokens(rollout: Rollout, stages: tuple[int, ...]) -> Rollout:
    """The rollout with a prompt of two tokens and one token for each stage id."""
    tokens = RolloutTokens(
        ids=(7,) * (2 + len(stages)), stage_ids=(-1, -1, *stages), logprobs=(0.0,) * (2 + len(stages)), prompt_length=2
    )
    return rollout.model_copy(update={"tokens": tokens})


async def test_a_rollout_waits_for_its_own_group_alone_and_gets_its_own_advantages(model_folder):
    service = make_service(model_folder, meta_policy=False)
    first = with_tokens(await attempt(ATTEMPTS[0]), (3, 3))
    waiting = asyncio.create_task(service.submit(NEW, first, group="g", index=0))
    await soon(lambda: service._groups)
    assert len(await submit_group(service, group="other")) == 2
    assert not waiting.done()
    second = await service.submit(NEW, with_tokens(await attempt(ATTEMPTS[1]), (3,)), group="g", index=1)
    # Of two, the better one is a deviation above the mean and the other below; the prompt has none.
    assert (await waiting).tolist() == pytest.approx([0, 0, -1, -1], abs=1e-5)
    assert second.tolist() == pytest.approx([0, 0, 1, 0], abs=1e-5)


async def test_a_rollout_that_the_world_broke_is_judged_with_its_group_and_teaches_nothing(model_folder):
    service = make_service(model_folder, meta_policy=False, judge={"settings": {"failure_limit": 0.5}})
    episode = Episode(QUERY)
    episode.abandon()
    lost = Rollout(trajectory=episode.trajectory, policy="verl", failure="the engine is gone")
    whole = asyncio.create_task(service.submit(NEW, await attempt(ATTEMPTS[1]), group="g", index=1))
    assert await service.submit(NEW, lost, group="g", index=0) is None
    assert lost.trajectory.ending is Ending.ABANDONED
    assert await whole is None  # one rollout alone is neither better nor worse
    report = await service.report(1, ["g"])
    assert (report["lost"], report["trained_rollouts"], report["encounter"]) == (1, 0, "new")


@pytest.mark.parametrize("mode", ["stages", "answer_only", "dr_grpo", "srar", "draco"])
async def test_token_advantages_equal_the_local_trainers_on_the_same_group(mode, model_folder):
    service = make_service(model_folder, meta_policy=False, credit=mode)
    rollouts = [with_tokens(await attempt(text), (0, 1, 1, 2, 3)) for text in ATTEMPTS]
    calls = [service.submit(NEW, one, group="g", index=index) for index, one in enumerate(rollouts)]
    given = await asyncio.gather(*calls)
    other = make_service(model_folder, meta_policy=False, credit=mode)
    group = Group.of(QUERY, [one.parsed for one in rollouts])
    judged = await other.judge.judge_group(group, step=1)
    credited = credit_rollouts([rollouts], [judged], settings=CreditSettings(credit=mode))
    samples = task_samples([rollouts], credited, version=0)
    assert len(samples) == 2
    for advantages, sample in zip(given, samples, strict=True):
        assert np.array_equal(advantages, sample.advantages)
        assert np.abs(advantages).max() > 0


async def test_a_step_that_lost_too_many_rollouts_stops_the_run(model_folder):
    service = make_service(model_folder, almanac={"knobs": {"failure_rate": 1.0}}, meta_policy=False)
    await submit_group(service)
    with pytest.raises(JudgeError, match=r"2 of the step's 2 rollouts were lost.*did not answer"):
        await service.report(1, ["g"])


async def test_a_judge_that_is_away_pauses_the_group_and_scores_it_once_it_is_back(model_folder):
    service = make_service(model_folder, meta_policy=False, outage={"patience": 60, "probe": 0.01})
    judge_group, answers = service.judge.judge_group, [False, False, True]
    away = make_service(model_folder, almanac={"knobs": {"failure_rate": 1.0}}, meta_policy=False).judge

    async def comes_back(group, *, step):
        return await (judge_group if answers.pop(0) else away.judge_group)(group, step=step)

    service.judge.judge_group = comes_back
    await submit_group(service)
    report = await service.report(1, ["g"])
    assert (report["lost"], answers) == (0, [])
    assert report["paused_seconds"] < 30
    assert (await service.pauses())[0] is False


async def test_a_group_that_an_outage_spoilt_is_sampled_again_after_the_resume(model_folder, tmp_path):
    service = make_service(model_folder, almanac={"knobs": {"failure_rate": 1.0}}, meta_policy=False)
    await submit_group(service)
    await save(service, tmp_path, held={"g"})
    other = make_service(model_folder, meta_policy=False)
    assert await other.load(tmp_path, step=1, identity=identity(other)) == ({}, ("g",))
    await submit_group(other)
    assert (await other.report(2, ["g"]))["lost"] == 0


async def test_a_group_at_the_limit_of_failures_is_not_sampled_again(model_folder, tmp_path):
    # One failure of two rollouts is a share of 0.5, which the limit allows.
    half = {"settings": {"failure_limit": 0.5}}
    service = make_service(model_folder, meta_policy=False, judge=half)
    episode = Episode(QUERY)
    episode.abandon()
    lost = Rollout(trajectory=episode.trajectory, policy="verl", failure="the engine is gone")
    whole = asyncio.create_task(service.submit(NEW, await attempt(ATTEMPTS[1]), group="g", index=1))
    await service.submit(NEW, lost, group="g", index=0)
    await whole
    await save(service, tmp_path, held={"g"})
    other = make_service(model_folder, meta_policy=False, judge=half)
    assert await other.load(tmp_path, step=1, identity=identity(other)) == ({}, ())


async def test_a_budget_that_is_used_up_stops_the_run_and_its_group_is_sampled_again_after_the_resume(
    model_folder, tmp_path
):
    service = make_service(model_folder, meta_policy=False)

    async def has_no_money(group, *, step):
        raise SpendLimitReached("the budget of 5 dollars is used up")

    service.judge.judge_group = has_no_money
    assert await submit_group(service) == [None, None]
    with pytest.raises(JudgeError, match="the budget of 5 dollars is used up"):
        await service.collect(step=2)
    await save(service, tmp_path, held={"g"})
    other = make_service(model_folder, meta_policy=False)
    assert await other.load(tmp_path, step=1, identity=identity(other)) == ({}, ("g",))


async def test_what_is_known_of_a_group_that_verl_has_dropped_is_not_saved(model_folder, tmp_path):
    service = make_service(model_folder, meta_policy=False)
    await submit_group(service, group="dropped")
    await save(service, tmp_path, step=1)  # credited since the last checkpoint: the queue may not have it yet
    await service.resume_scoring()
    await submit_group(service, group="held")
    await save(service, tmp_path, step=2, held={"held"})
    other = make_service(model_folder, meta_policy=False)
    await other.load(tmp_path, step=2, identity=identity(other))
    assert (await other.report(3, ["held"]))["encounter"] == "new"
    with pytest.raises(KeyError):
        await other.report(3, ["dropped"])


async def test_reflections_are_trained_on_one_step_later_and_the_best_is_shown_at_the_repeat(model_folder, tokenizer):
    service = make_service(model_folder)
    await reflected(service, tokenizer)
    outcomes, metrics = await service.collect(step=1)
    assert (outcomes, metrics["utility"]) == ([], None)
    outcomes, metrics = await service.collect(step=2)
    assert (len(outcomes), metrics["staleness"], metrics["bank"]) == (1, [1], 1)
    # The weights that have drawn it, not those of the step that trains on it.
    assert outcomes[0].policy_version == 7
    assert "Give figures as the field does." in await service.references(REPEAT, 0)


async def test_lessons_are_retrieved_once_for_a_group_and_again_for_the_next(model_folder, tokenizer, monkeypatch):
    service = make_service(model_folder)
    await reflected(service, tokenizer)
    bank, calls = service.bank, []
    retrieve = bank.retrieve
    monkeypatch.setattr(bank, "retrieve", lambda *given: calls.append(given) or retrieve(*given))
    blocks = await asyncio.gather(*(service.references(REPEAT, 0) for _ in range(8)))
    assert (len(calls), len(set(blocks))) == (1, 1)
    await submit_group(service, REPEAT)
    await service.references(REPEAT, 0)
    assert len(calls) == 2


def on_probation(model_folder, **changes) -> JudgeService:
    service = make_service(model_folder, bank=SECTION["bank"] | {"probation": {}}, **changes)
    service.bank.write(make_reflection("How wide is another river?", rubrics="Names the season."))
    return service


async def test_half_of_a_group_sees_a_lesson_on_probation_and_its_scores_are_compared(model_folder):
    service = on_probation(model_folder)
    blocks = [await service.references(NEW, index) for index in range(2)]
    assert sorted("Names the season." in block for block in blocks) == [False, True]
    await submit_group(service)
    effect = service.bank.item(1).effect
    assert (effect.shown, effect.unshown, effect.questions) == (1, 1, (QUERY.key,))


async def test_a_group_that_no_checkpoint_counts_as_scored_is_not_in_its_bank_either(model_folder, tmp_path):
    service = on_probation(model_folder, meta_policy=True, reflect_phase="new")
    await service.references(NEW, 0)
    before = service.bank.state_mark
    assert await save(service, tmp_path) == ()
    # Judged while veRL saves its queue: the group waits with both.
    submitted = asyncio.create_task(submit_group(service))
    for _ in range(50):
        await asyncio.sleep(0)
    assert service.bank.state_mark == before
    assert not submitted.done()
    await service.resume_scoring()
    await submitted
    assert service.bank.item(1).effect.shown == 1


async def test_a_question_has_no_lesson_of_its_own_when_it_is_new_and_none_without_the_meta_policy(
    model_folder, tokenizer
):
    service = make_service(model_folder)
    await reflected(service, tokenizer)
    assert await service.references(NEW, 0) == ""
    assert await make_service(model_folder, meta_policy=False).references(REPEAT, 0) == ""


@pytest.mark.parametrize(("on_miss", "is_shown"), [("none", False), ("cross", True)])
async def test_a_repeat_without_its_own_lesson_is_shown_similar_ones_if_asked(model_folder, on_miss, is_shown):
    service = make_service(model_folder, on_miss=on_miss)
    service.bank.write(make_reflection("How wide is another river?", rubrics="Names the season."))
    assert ("Names the season." in await service.references(REPEAT, 0)) is is_shown


@pytest.mark.parametrize(("phase", "launched"), [("new", 0), ("all", 1)])
async def test_repeats_are_reflected_on_as_the_phase_says(model_folder, tokenizer, phase, launched):
    service = make_service(model_folder, reflect_phase=phase)
    await service.open(FakeClient(tokenizer, [REFLECTION], versions=(7,)))
    await submit_group(service, REPEAT)
    await service.drain()
    outcomes, _ = await service.collect(step=9)
    assert len(outcomes) == launched


async def test_a_held_out_judge_scores_a_sample_of_every_second_step_and_reports_later(model_folder, tmp_path):
    service = make_service(model_folder, held_out_judge={"every": 2, "share": 1.0}, meta_policy=False)
    await submit_group(service)
    assert "audit" not in (await service.collect(step=1))[1]
    await submit_group(service, REPEAT)
    assert "audit" not in (await service.collect(step=2))[1]  # begun, and nothing waits for it
    for _ in range(100):
        await asyncio.sleep(0)
    _, metrics = await service.collect(step=3)
    # The almanac's judge without knobs is the run's own judge here, so they agree.
    assert (metrics["audit"]["sampled"], metrics["audit"]["gap"]) == (2, 0.0)
    await save(service, tmp_path, step=3)
    resumed = make_service(model_folder, held_out_judge={"every": 2}, meta_policy=False)
    await resumed.load(tmp_path, step=3, identity=identity(resumed))
    assert resumed._audit.audit.state_dict() == {"gaps": [0.0]}
    # The history begins anew where the checkpoint was taken without a held-out judge.
    await save(make_service(model_folder, meta_policy=False), tmp_path, step=4)
    await resumed.load(tmp_path, step=4, identity=identity(resumed))


def test_a_held_out_judge_outside_the_almanac_has_a_name():
    with pytest.raises(ConfigError, match="held_out_judge names no judge"):
        read_section({"questions": "q.jsonl", "held_out_judge": {"every": 5}})


async def test_a_dead_engine_fails_the_reflection_and_nothing_else(model_folder):
    service = make_service(model_folder)
    await service.open(BrokenClient())
    await submit_group(service)
    await service.drain()
    outcomes, metrics = await service.collect(step=2)
    assert outcomes == []
    assert "the actor died" in metrics["failed_reflections"][0]
    assert flat_metrics(metrics)["rubricem/failed_reflections/count"] == 1.0


@pytest.mark.no_cover
async def test_a_loaded_service_has_the_same_bank_and_rubrics_and_the_outcomes_that_are_not_trained_on(
    model_folder, tokenizer, tmp_path
):
    service = make_service(model_folder)
    await reflected(service, tokenizer)
    await save(service, tmp_path, stream={"at": 7})
    other = make_service(model_folder)
    assert await other.load(tmp_path, step=1, identity=identity(other)) == ({"at": 7}, ())
    assert other.bank.items() == service.bank.items()
    assert other.judge.state_dict() == service.judge.state_dict()
    outcomes, _ = await other.collect(step=2)
    assert len(outcomes) == 1


async def test_a_reflection_that_was_pending_at_the_checkpoint_is_written_after_the_resume(
    model_folder, tokenizer, tmp_path
):
    service = make_service(model_folder)
    await service.open(SlowClient())
    await submit_group(service)
    assert service.reflections.pending
    await save(service, tmp_path)
    other = make_service(model_folder)
    await other.load(tmp_path, step=1, identity=identity(other))
    await other.open(FakeClient(tokenizer, [REFLECTION]))
    await other.drain()
    outcomes, _ = await other.collect(step=2)
    assert len(outcomes) == 1
    assert other.bank.retrieve(QUERY.question, "within")
    await service.reflections.cancel()


class SlowBank:
    """Writes only when its contents are requested, or after half a second; until then the writer waits."""

    def __init__(self, bank):
        self.bank = bank
        self.begun, self.may_go_on, self.written, self.requested = (threading.Event() for _ in range(4))

    def __getattr__(self, name):
        return getattr(self.bank, name)

    def __len__(self):
        return len(self.bank)

    def write(self, *arguments, **options):
        self.begun.set()
        assert self.may_go_on.wait(60)
        try:
            return self.bank.write(*arguments, **options)
        finally:
            self.written.set()

    def contents(self, *, since=0):
        self.requested.set()
        assert self.written.wait(60)
        return self.bank.contents(since=since)


async def test_a_reflection_that_ends_while_a_checkpoint_is_taken_is_written_once(model_folder, tokenizer, tmp_path):
    service = make_service(model_folder)
    service.bank = SlowBank(service.bank)
    await service.open(FakeClient(tokenizer, [REFLECTION]))
    await submit_group(service)
    await soon(service.bank.begun.is_set)
    saving = asyncio.create_task(save(service, tmp_path))
    # The checkpoint waits for the write, or, if it did not, it would read the bank now.
    await soon(lambda: service._reflector.writing._waiters or service.bank.requested.is_set())
    service.bank.may_go_on.set()
    await saving
    other = make_service(model_folder)
    await other.load(tmp_path, step=1, identity=identity(other))
    await other.open(FakeClient(tokenizer, [REFLECTION]))
    await other.drain()
    assert len(other.bank.history(QUERY.key)) == 1
    outcomes, _ = await other.collect(step=2)
    assert len(outcomes) == 1


async def test_a_group_that_is_played_again_after_a_resume_is_not_reflected_on_twice(model_folder, tokenizer, tmp_path):
    service = make_service(model_folder)
    await reflected(service, tokenizer)
    await save(service, tmp_path)
    other = make_service(model_folder)
    await other.load(tmp_path, step=1, identity=identity(other))
    await reflected(other, tokenizer)
    outcomes, _ = await other.collect(step=2)
    assert len(outcomes) == 1


UNIT_MATRIX = [[float(row == column) for column in range(4)] for row in range(4)]


@pytest.mark.parametrize(("name", "value"), [("window", 2), ("credit", "answer_only"), ("matrix", UNIT_MATRIX)])
async def test_a_checkpoint_of_other_settings_is_refused_by_name(model_folder, tmp_path, name, value):
    service = make_service(model_folder)
    await save(service, tmp_path)
    other = make_service(model_folder, **{name: value})
    with pytest.raises(UsageError, match=rf"written with rubricem\.{name}=.*start a new run"):
        await other.load(tmp_path, step=1, identity=identity(other))


class SlowClient:
    """An engine that does not come back."""

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        await asyncio.Event().wait()


SLOW_JUDGE = {"knobs": {"latency": 0.2}}


async def soon(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_group_that_is_being_judged_at_a_checkpoint_gets_its_credit_only_when_the_checkpoint_is_complete(
    model_folder, tmp_path
):
    service = make_service(model_folder, almanac=SLOW_JUDGE, meta_policy=False)
    group = asyncio.create_task(submit_group(service))
    await soon(lambda: not service._groups and not group.done() and service.judge.buffer._locks)
    assert await save(service, tmp_path) == ()
    # Judging continues meanwhile and ends; its credit is not given out.
    await soon(lambda: service._may_score._waiters)
    assert not group.done()
    await service.resume_scoring()
    assert len(await group) == 2
    assert (await service.report(1, ["g"]))["lost"] == 0


async def test_such_a_group_is_not_in_the_checkpoint_so_that_the_resumed_run_judges_it_once(model_folder, tmp_path):
    service = make_service(model_folder, almanac=SLOW_JUDGE)
    await service.open(SlowClient())
    group = asyncio.create_task(submit_group(service))
    await soon(lambda: bool(service.judge.buffer._locks))
    await save(service, tmp_path)
    other = make_service(model_folder)
    await other.load(tmp_path, step=1, identity=identity(other))
    await other.open(SlowClient())
    assert (other.reflections.pending, other.judge.state_dict()["buffer"]["questions"]) == ((), {})
    await submit_group(other)
    assert other.reflections.pending == (Ticket(NEW.step, QUERY.key),)
    await service.resume_scoring()
    await group
    for one in (service, other):
        await one.reflections.cancel()


async def test_a_checkpoint_names_the_groups_that_were_credited_since_the_last_one(model_folder, tmp_path):
    service = make_service(model_folder, meta_policy=False)
    await submit_group(service, group="first")
    await submit_group(service, group="second")
    assert await save(service, tmp_path, step=1) == ("first", "second")
    await service.resume_scoring()
    await submit_group(service, group="third")
    assert await save(service, tmp_path, step=2) == ("third",)


@pytest.mark.parametrize("name", ["judge", "deferred", "waiting", "identity", "bank"])
@pytest.mark.parametrize("content", [b"", b"[7]", b'{"waiting": null}', b"[" * 100_000])
async def test_a_damaged_checkpoint_is_one_sentence(model_folder, tmp_path, name, content):
    service = make_service(model_folder)
    await save(service, tmp_path)
    manifest = tmp_path / "step-000001" / "manifest.json"
    described = json.loads(manifest.read_text())
    part = described["parts"][name]
    part |= {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (manifest.parent / part["file"]).write_bytes(content)
    manifest.write_text(json.dumps(described))
    with pytest.raises(UsageError) as refusal:
        await make_service(model_folder).load(tmp_path, step=1, identity=identity(service))
    assert "\n" not in str(refusal.value)


async def numbers_of(service: JudgeService, folder, *, step: int):
    """All that a later step can depend on: what the checkpoint holds, and the report of both groups' training."""
    await service.drain()
    await save(service, folder, step=step, held={"before", "paused"}, stream={"at": 2})
    saved = load_checkpoint(find_checkpoint(folder, step=step), step=step)
    states = {name: saved.read_json(name) for name in ("judge", "deferred", "waiting", "noted", "stream")}
    report = await service.report(step + 1, ["before", "paused"])
    return states, {name: value for name, value in report.items() if name != "paused_seconds"}


async def test_a_run_that_is_killed_in_a_pause_resumes_to_the_numbers_of_one_that_never_paused(
    model_folder, tokenizer, tmp_path
):
    later = ScheduledQuery(QUERY, 2, "new")
    scored = [with_tokens(await attempt(text), (0, 1, 2, 3)) for text in ATTEMPTS]

    async def judged(service: JudgeService, scheduled: ScheduledQuery, group: str):
        calls = [service.submit(scheduled, one, group=group, index=index) for index, one in enumerate(scored)]
        return await asyncio.gather(*calls)

    unbroken = make_service(model_folder)
    await unbroken.open(FakeClient(tokenizer, [REFLECTION]))
    expected = [*await judged(unbroken, NEW, "before"), *await judged(unbroken, later, "paused")]

    service = make_service(model_folder, outage={"patience": 600, "probe": 0.01})
    await service.open(FakeClient(tokenizer, [REFLECTION]))
    given = await judged(service, NEW, "before")
    away = make_service(model_folder, almanac={"knobs": {"failure_rate": 1.0}})
    service.judge.judge = away.judge.judge
    waiting = asyncio.create_task(judged(service, later, "paused"))
    while not (await service.pauses())[0]:
        await asyncio.sleep(0.01)
    # The step ends in the pause and is saved; the group that waits for the judge is pending in veRL's queue.
    assert await save(service, tmp_path, step=1, held={"before", "paused"}, stream={"at": 1}) == ("before",)
    await service.resume_scoring()
    assert not waiting.done()
    waiting.cancel()  # the kill

    resumed = make_service(model_folder)
    assert await resumed.load(tmp_path, step=1, identity=identity(resumed)) == ({"at": 1}, ())
    await resumed.open(FakeClient(tokenizer, [REFLECTION]))
    given += await judged(resumed, later, "paused")
    assert [one.tolist() for one in given] == [one.tolist() for one in expected]
    assert np.abs(given[3]).max() > 0
    assert await numbers_of(resumed, tmp_path, step=2) == await numbers_of(unbroken, tmp_path / "unbroken", step=2)


async def test_a_step_counts_what_the_judge_failed_at_and_stops_at_too_many_lost_proposals(model_folder):
    async def fails(contrast):
        return Proposal(failure="quota")

    service = make_service(model_folder, meta_policy=False)
    service.judge.judge.propose = fails
    await submit_group(service)
    with pytest.raises(JudgeError, match=r"1 of the step's 1 proposals were lost; .* First failure: quota"):
        await service.report(1, ["g"])

    tolerant = make_service(model_folder, meta_policy=False, judge={"settings": {"proposal_limit": 1.0}})
    tolerant.judge.judge.propose = fails
    await submit_group(tolerant)
    report = await tolerant.report(1, ["g"])
    assert (report["failed_proposals"], report["failed_scores"]) == (1, 0)
