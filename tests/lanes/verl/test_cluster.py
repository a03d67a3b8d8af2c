"""A cluster that is not there is told at once, in a sentence."""

import socket

import pytest

from rubricem_env.domain.errors import BoundaryError
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


def test_an_engine_that_died_under_its_server_is_told_as_a_lost_process():
    class EngineDeadError(Exception):
        """vLLM's, by its name."""

    failure = RuntimeError("a call to the server failed")
    failure.__cause__ = EngineDeadError()
    assert "the engine behind a vLLM server" in str(root_cause(failure))
    assert root_cause(RuntimeError("something else")).args == ("something else",)
