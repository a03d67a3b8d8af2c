"""A cluster that is not there is told at once, in a sentence."""

import socket

import pytest
from ray.exceptions import RaySystemError

from rubricem_env.domain.errors import BoundaryError
from tests.lanes.verl.runs import LIMIT, SMALL, started
from trainers.verl_backend.launch import refuse_unreachable
from trainers.verl_backend.trainer import root_cause


def test_an_address_where_nobody_listens_is_refused_with_the_command_that_would_change_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refuse_unreachable(f"127.0.0.1:{port}")
    with pytest.raises(BoundaryError, match=rf"RAY_ADDRESS=127.0.0.1:{port} .*ray start --head --port={port}"):
        refuse_unreachable(f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["", "auto", "local", "ray://head:10001"])
def test_what_is_no_address_of_that_form_is_left_to_ray(address):
    refuse_unreachable(address)


@pytest.mark.parametrize(
    "failure",
    [
        Exception("The current node timed out"),
        NotADirectoryError(20, "Not a directory"),
        RaySystemError("no raylet"),
        KeyError(),
    ],
)
def test_ray_that_does_not_start_is_told_in_a_sentence(failure):
    told = root_cause(failure, is_started=False)
    assert isinstance(told, BoundaryError)
    assert str(told).startswith("Ray did not start: ")


def test_a_folder_that_ray_cannot_use_ends_the_command_in_a_sentence(policy, tmp_path):
    (tmp_path / "taken").touch()
    with started(tmp_path / "run", policy, *SMALL, f"++ray_kwargs.ray_init._temp_dir={tmp_path}/taken/ray") as run:
        assert run.wait(LIMIT) == 2, run.tail()
        assert run.sentences[-1].startswith("verl_ssgrpo: Ray did not start: ")


def test_an_engine_that_died_under_its_server_is_told_as_a_lost_process():
    class EngineDeadError(Exception):
        """vLLM's, by its name."""

    failure = RuntimeError("a call to the server failed")
    failure.__cause__ = EngineDeadError()
    assert "the engine behind a vLLM server" in str(root_cause(failure))
    assert root_cause(RuntimeError("something else")).args == ("something else",)
