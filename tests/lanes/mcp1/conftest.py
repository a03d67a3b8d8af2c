"""What the tests of this lane share."""

import pytest

from tests.lanes.mcp1.servers import serve_over_http


@pytest.fixture(scope="session")
def our_url():
    """One server of ours over HTTP for all tests that do not end it."""
    with serve_over_http() as url:
        yield url
