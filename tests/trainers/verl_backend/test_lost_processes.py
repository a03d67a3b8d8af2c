"""The death of a process, in one sentence."""

import pytest

from trainers.verl_backend.lost_processes import lost_process

TOLD = (
    "The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict\n"
    "\tactor_id: 6f3f6ddb01000000\n"
    "\tpid: 4242\n"
    "\tname: q7xWorkerDict_0:0\n"
    "\tnamespace: 0f0f\n"
    "\tip: 10.0.0.7\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR."
)


@pytest.mark.parametrize(
    ("told", "named"),
    [
        (TOLD, "WorkerDict, process 4242 on 10.0.0.7."),
        # What Ray cannot name is told as Ray tells it, in one line.
        ("The actor 6f3f is unavailable:\n  keepalive.", "The actor 6f3f is unavailable: keepalive."),
    ],
)
def test_a_lost_process_is_named_in_one_line(told, named):
    sentence = str(lost_process(told))
    assert sentence.startswith(f"a process of the run is gone: {named}")
    assert "resumes from the last checkpoint" in sentence
    assert "\n" not in sentence


def test_a_process_that_never_came_up_is_told_by_what_it_raised():
    told = (
        "The actor died because of an error raised in its creation task, ray::Worker.__init__() (pid=7, ip=10.0.0.7)\n"
        '  File "worker.py", line 3, in __init__\n    find(name)\n           ^^^^\n'
        "AssertionError: Rollout foo with mode async not found\n"
    )
    sentence = str(lost_process(told))
    assert sentence.startswith("a process of the run could not start: AssertionError: Rollout foo with mode async not")
    assert "File" not in sentence
