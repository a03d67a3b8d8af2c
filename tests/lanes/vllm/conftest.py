"""One server for the whole lane."""

import pytest


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    # Not at the top: elsewhere than in the lane its packages may be missing, and the tests are skipped.
    from tests.lanes.vllm.served import serve_tiny

    with serve_tiny(tmp_path_factory.mktemp("vllm")) as up:
        print(f"\nvllm serve was up after {up.start_seconds:.0f} s")  # noqa: T201 - a figure to report
        yield up
