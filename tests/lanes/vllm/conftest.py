"""One server for the whole lane."""

from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    if find_spec("vllm") is None:
        pytest.skip("vllm is not installed; run make vllm-lane")
    from tests.lanes.vllm.served import serve_tiny

    with serve_tiny(tmp_path_factory.mktemp("vllm")) as up:
        print(f"\nvllm serve was up after {up.start_seconds:.0f} s")  # noqa: T201 - the figure is wanted in the lane's output
        yield up
