"""Many episodes at once: order, seeds, bounds, failures, and going on after a kill."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys

import pytest

from rubricem_agent.policy.base import Emission, Opening
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.rollout.rollout import RolloutJournal
from rubricem_agent.rollout.run import RolloutPlan, Setting, attempt_seed, run_groups
from rubricem_env.domain.errors import FileFormatError, ModelError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.research_env import shipped_toolbox
from rubricem_env.llm.usage import SpendLimitReached
from rubricem_env.testing.episodes import writes

QUERIES = tuple(Query(question=f"Question {number}?") for number in range(3))


async def open_query(query):
    return Opening("rules", query.question), "hash"


def plan(queries=QUERIES, **changes):
    return RolloutPlan(queries, open_query, **{"group_size": 2, "seed": 5, **changes})


def setting(policy=None):
    return Setting(policy or ScriptedPolicy(writes("<think>t</think><answer>60 m</answer>")), shipped_toolbox())


class Crowded:
    """A policy that counts how many of its turns run at once; later conversations are done first."""

    name = "crowded"
    pieces = ()

    def __init__(self, failure=None):
        self.most = self._running = self._opened = 0
        self._failure = failure

    def open(self, opening, *, sampling, seed):
        self._opened += 1
        return _CrowdedTurn(self, 12 - self._opened, seed)

    def count_tokens(self, text):
        return 1


class _CrowdedTurn:
    pieces = ()

    def __init__(self, policy, yields, seed):
        self._policy, self._yields, self._seed = policy, yields, seed

    async def emit(self, *, max_tokens, listener):
        self._policy._running += 1
        self._policy.most = max(self._policy.most, self._policy._running)
        for _ in range(self._yields):
            await asyncio.sleep(0)
        self._policy._running -= 1
        if self._policy._failure is not None:
            raise self._policy._failure
        return Emission(f"<answer>{self._seed}</answer>", "action")

    def observe(self, text):
        return None

    def close(self):
        return None


async def test_results_stand_in_the_order_of_questions_and_attempts_whatever_finished_first():
    finished = []
    groups = await run_groups(plan(), setting(Crowded()), on_progress=lambda p: finished.append(p.latest))
    flat = [rollout for group in groups for rollout in group]
    assert [len(group) for group in groups] == [2, 2, 2]
    assert [rollout.trajectory.question for rollout in flat] == [q.question for q in QUERIES for _ in range(2)]
    assert finished != flat


async def test_an_attempt_draws_the_same_however_many_run_at_once():
    one = await run_groups(plan(concurrency=1), setting(Crowded()))
    many = await run_groups(plan(concurrency=6), setting(Crowded()))
    assert one == many


async def test_no_more_run_at_once_than_allowed():
    policy = Crowded()
    await run_groups(plan(concurrency=2), setting(policy))
    assert policy.most == 2


async def test_progress_counts_failures_and_a_failure_is_a_rollout():
    seen = []
    groups = await run_groups(plan(), setting(Crowded(ModelError("gone"))), on_progress=seen.append)
    assert [(p.done, p.total, p.failed) for p in seen] == [(n, 6, n) for n in range(1, 7)]
    assert {rollout.failure for group in groups for rollout in group} == {"gone"}


async def test_a_reached_ceiling_ends_the_run_as_itself():
    with pytest.raises(SpendLimitReached, match="enough"):
        await run_groups(plan(), setting(Crowded(SpendLimitReached("enough"))))


def test_places_have_seeds_of_their_own():
    places = [(key, occurrence, attempt) for key in "ab" for occurrence in (0, 1) for attempt in (0, 1)]
    assert len({attempt_seed(0, place) for place in places}) == 8


async def test_a_question_asked_twice_has_two_groups(tmp_path):
    journal = RolloutJournal.open(tmp_path / "run.jsonl", fingerprint="f")
    groups = await run_groups(plan(QUERIES[:1] * 2), setting(Crowded()), journal=journal)
    assert (len(groups), len(journal.finished)) == (2, 4)


async def test_what_is_finished_is_not_repeated(tmp_path):
    path = tmp_path / "run.jsonl"
    first = await run_groups(plan(), setting(), journal=RolloutJournal.open(path, fingerprint="f"))
    failing = setting(Crowded(ModelError("must not be asked")))
    seen = []
    again = await run_groups(
        plan(), failing, journal=RolloutJournal.open(path, fingerprint="f"), on_progress=seen.append
    )
    assert again == first
    assert all(progress.is_resumed for progress in seen)


async def test_what_failed_is_tried_again(tmp_path):
    path = tmp_path / "run.jsonl"
    failing = setting(Crowded(ModelError("gone")))
    await run_groups(plan(), failing, journal=RolloutJournal.open(path, fingerprint="f"))
    groups = await run_groups(plan(), setting(), journal=RolloutJournal.open(path, fingerprint="f"))
    assert all(rollout.is_valid for group in groups for rollout in group)
    assert len(RolloutJournal.open(path, fingerprint="f").finished) == 6


async def test_a_broken_last_line_is_dropped_with_a_warning_and_done_again(tmp_path):
    path = tmp_path / "run.jsonl"
    whole = await run_groups(plan(), setting(), journal=RolloutJournal.open(path, fingerprint="f"))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.warns(UserWarning, match="truncated line"):
        journal = RolloutJournal.open(path, fingerprint="f")
    assert len(journal.finished) == 5
    assert await run_groups(plan(), setting(), journal=journal) == whole
    assert len(RolloutJournal.open(path, fingerprint="f").finished) == 6


@pytest.mark.parametrize("left", [1, 0.5, 0.999])
async def test_wherever_the_last_line_breaks_the_lines_before_and_after_it_are_whole(tmp_path, left):
    path = tmp_path / "run.jsonl"
    queries = (Query(question="川の幅は？ Größe?"),)
    await run_groups(plan(queries), setting(), journal=RolloutJournal.open(path, fingerprint="f"))
    content = path.read_bytes()
    begun = content.rfind(b"\n", 0, -1) + 1
    path.write_bytes(content[: begun + (left if left == 1 else int((len(content) - begun) * left))])
    with pytest.warns(UserWarning, match="truncated line"):
        journal = RolloutJournal.open(path, fingerprint="f")
    assert path.read_bytes() == content[:begun]
    await run_groups(plan(queries), setting(), journal=journal)
    assert path.read_bytes() == content


async def test_a_line_that_does_not_fit_on_the_disk_leaves_no_part_of_itself(tmp_path):
    path = tmp_path / "run.jsonl"
    ((rollout, _),) = await run_groups(plan(QUERIES[:1]), setting())
    journal = RolloutJournal.open(path, fingerprint="f")
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(FileFormatError, match=r"File too large\. Make room"):
            journal.append(("k", 0, 0), rollout)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (path.read_bytes(), journal.finished) == (before, {})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: ['{"journal": 9}', *lines[1:]], "of version 9"),
        (lambda lines: ['{"other": 1}', *lines[1:]], "not a journal"),
        (lambda lines: [lines[0], "{broken", *lines[2:]], "line 2 is not JSON"),
        (lambda lines: [lines[0], "[]", *lines[2:]], "line 2 is not a JSON object"),
        (lambda lines: [lines[0], '{"place": 3}', *lines[2:]], "line 2 does not say"),
        (lambda lines: [lines[0], '{"place": ["k", 0, 0], "rollout": {}}', *lines[2:]], "line 2 is not a rollout"),
    ],
)
async def test_damage_is_named_with_its_place(tmp_path, damage, said):
    path = tmp_path / "run.jsonl"
    await run_groups(plan(), setting(), journal=RolloutJournal.open(path, fingerprint="f"))
    path.write_text("\n".join(damage(path.read_text().splitlines())) + "\n")
    with pytest.raises(FileFormatError, match=said):
        RolloutJournal.open(path, fingerprint="f")


def test_a_journal_of_other_settings_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    RolloutJournal.open(path, fingerprint="one")
    with pytest.raises(FileFormatError, match="other settings"):
        RolloutJournal.open(path, fingerprint="two")


KILLED = """
import asyncio, sys
from rubricem_agent.rollout.run import run_groups
from rubricem_agent.rollout.rollout import RolloutJournal
from test_group import Crowded, plan, setting

class Hanging(Crowded):
    def open(self, opening, *, sampling, seed):
        turn = super().open(opening, sampling=sampling, seed=seed)
        if self._opened == 4:
            turn._yields = 10**9
        return turn

def tell(progress):
    print(progress.done, flush=True)

journal = RolloutJournal.open(sys.argv[1], fingerprint="f")
asyncio.run(run_groups(plan(concurrency=1), setting(Hanging()), journal=journal, on_progress=tell))
"""


async def test_a_killed_run_goes_on_where_it_was(tmp_path):
    path = tmp_path / "run.jsonl"
    script = KILLED.replace("sys.argv[1]", f"__import__('pathlib').Path({str(path)!r})")
    environ = {**os.environ, "PYTHONPATH": os.path.dirname(__file__) + os.pathsep + os.getcwd()}
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environ)
    done = [child.stdout.readline().strip() for _ in range(3)]
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert done == ["1", "2", "3"]
    journal = RolloutJournal.open(path, fingerprint="f")
    assert len(journal.finished) == 3
    resumed = await run_groups(plan(), setting(Crowded()), journal=journal)
    assert resumed == await run_groups(plan(), setting(Crowded()))
    assert json.loads(path.read_text().splitlines()[0]) == {"journal": 1, "fingerprint": "f"}
