"""Many episodes at once: order, seeds, limits, failures, and the resume after a kill."""

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
from rubricem_agent.rollout.rollout import RolloutJournal, attempt_seed
from rubricem_agent.rollout.run import Setting, run_groups
from rubricem_env.domain.errors import ConfigError, FileFormatError, ModelError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.research_env import shipped_toolbox
from rubricem_env.llm.usage import SpendLimitReached
from rubricem_env.testing.episodes import writes

QUERIES = tuple(Query(question=f"Question {number}?") for number in range(3))


async def open_query(query, _attempt):
    return Opening("rules", query.question), "hash"


async def play(policy=None, queries=QUERIES, *, path=None, **options):
    setting = Setting(policy or ScriptedPolicy(writes("<think>t</think><answer>60 m</answer>")), shipped_toolbox())
    journal = RolloutJournal.open(path, fingerprint="f") if path else None
    return await run_groups(queries, open_query, setting, journal=journal, **{"group_size": 2, "seed": 5, **options})


def finished_in(path):
    return RolloutJournal.open(path, fingerprint="f").finished


class Crowded:
    """A policy that counts how many of its turns run at once; later conversations are done first."""

    name = "crowded"

    def __init__(self, failure=None):
        self.most = self._running = self._opened = 0
        self.finished = []
        self._failure = failure

    def open(self, opening, *, sampling, seed):
        self._opened += 1
        return _CrowdedTurn(self, 12 - self._opened, seed, self._opened)

    def count_tokens(self, text):
        return 1


class _CrowdedTurn:
    pieces = ()

    def __init__(self, policy, yields, seed, number):
        self._policy, self._yields, self._seed, self._number = policy, yields, seed, number

    async def emit(self, *, max_tokens, listener):
        self._policy._running += 1
        self._policy.most = max(self._policy.most, self._policy._running)
        for _ in range(self._yields):
            await asyncio.sleep(0)
        self._policy._running -= 1
        self._policy.finished.append(self._number)
        if self._policy._failure is not None:
            raise self._policy._failure
        return Emission(f"<answer>{self._seed}</answer>", "action")

    def observe(self, text):
        return None

    def close(self):
        return None


async def test_results_are_in_the_order_of_questions_and_attempts_whatever_finished_first():
    policy = Crowded()
    groups = await play(policy)
    asked = [[rollout.trajectory.question for rollout in group] for group in groups]
    assert asked == [[query.question] * 2 for query in QUERIES]
    assert policy.finished == sorted(policy.finished, reverse=True) != []


async def test_an_attempt_draws_the_same_however_many_run_at_once():
    assert await play(Crowded(), concurrency=1) == await play(Crowded(), concurrency=6)


async def test_no_more_run_at_once_than_allowed():
    policy = Crowded()
    await play(policy, concurrency=2)
    assert policy.most == 2


async def test_a_reached_spending_limit_ends_the_run():
    with pytest.raises(SpendLimitReached, match="enough"):
        await play(Crowded(SpendLimitReached("enough")))


def test_each_index_has_its_own_seed():
    indices = [(key, occurrence, attempt) for key in "ab" for occurrence in (0, 1) for attempt in (0, 1)]
    assert len({attempt_seed(0, index) for index in indices}) == 8


async def test_a_question_asked_twice_has_two_groups(tmp_path):
    path = tmp_path / "run.jsonl"
    groups = await play(Crowded(), QUERIES[:1] * 2, path=path)
    assert (len(groups), len(finished_in(path))) == (2, 4)


async def test_finished_attempts_are_not_repeated_and_failed_ones_are(tmp_path):
    path = tmp_path / "run.jsonl"
    failing = Crowded(ModelError("gone"))
    await play(failing, path=path)
    whole = await play(path=path)
    assert all(rollout.is_valid for group in whole for rollout in group)
    assert await play(failing, path=path) == whole
    assert len(finished_in(path)) == 6


@pytest.mark.parametrize("left", [1, 0.5, 0.999])
async def test_wherever_the_last_line_breaks_the_lines_before_and_after_it_are_whole(tmp_path, left):
    path = tmp_path / "run.jsonl"
    queries = (Query(question="川の幅は？ Größe?"),)
    await play(queries=queries, path=path)
    content = path.read_bytes()
    begun = content.rfind(b"\n", 0, -1) + 1
    path.write_bytes(content[: begun + (left if left == 1 else int((len(content) - begun) * left))])
    with pytest.warns(UserWarning, match="truncated line"):
        await play(queries=queries, path=path)
    assert path.read_bytes() == content


async def test_a_line_that_does_not_fit_on_the_disk_leaves_no_part_of_itself(tmp_path):
    path = tmp_path / "run.jsonl"
    ((rollout, _),) = await play(queries=QUERIES[:1])
    journal = RolloutJournal.open(path, fingerprint="f")
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(ConfigError, match=r"File too large\. Make room"):
            journal.append(("k", 0, 0), rollout)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (path.read_bytes(), journal.finished) == (before, {})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: ['{"journal": 9}', *lines[1:]], "of version 9"),
        (lambda lines: ['{"other": 1}', *lines[1:]], "not a journal"),
        (
            lambda lines: [lines[0], "{broken", *lines[2:]],
            "line 2 is not a rollout: at the object: invalid JSON.*Remove the line",
        ),
        (lambda lines: [lines[0], "[]", *lines[2:]], "line 2 is not a rollout: at the object"),
        (lambda lines: [lines[0], '{"place": 3}', *lines[2:]], "line 2 is not a rollout: at place"),
        (lambda lines: [lines[0], '{"place": ["k", 0, 0], "rollout": {}}', *lines[2:]], "line 2 is not a rollout"),
    ],
)
async def test_damage_is_named_with_its_line(tmp_path, damage, said):
    path = tmp_path / "run.jsonl"
    await play(path=path)
    path.write_text("\n".join(damage(path.read_text().splitlines())) + "\n")
    with pytest.raises(FileFormatError, match=said):
        RolloutJournal.open(path, fingerprint="f")


def test_a_journal_of_other_settings_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    RolloutJournal.open(path, fingerprint="one")
    with pytest.raises(FileFormatError, match="other settings"):
        RolloutJournal.open(path, fingerprint="two")


KILLED = """
import asyncio, pathlib, sys
from test_group import Crowded, play

class Hanging(Crowded):
    def open(self, opening, *, sampling, seed):
        turn = super().open(opening, sampling=sampling, seed=seed)
        if self._opened == 4:
            print("the fourth", flush=True)
            turn._yields = 10**9
        return turn

asyncio.run(play(Hanging(), path=pathlib.Path(sys.argv[1]), concurrency=1))
"""


async def test_a_killed_run_resumes_where_it_was(tmp_path):
    path = tmp_path / "run.jsonl"
    environ = {**os.environ, "PYTHONPATH": os.path.dirname(__file__) + os.pathsep + os.getcwd()}
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, env=environ)
    assert child.stdout.readline() == b"the fourth\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert len(finished_in(path)) == 3
    assert await play(Crowded(), path=path) == await play(Crowded())
    assert json.loads(path.read_text().splitlines()[0]) == {"journal": 1, "fingerprint": "f"}
