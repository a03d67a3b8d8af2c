"""A private network is a fact of a lesson; an address in its form, or with a path behind it, is an address."""

import pytest

from rubricem_env.scaffold.addresses import find_address


@pytest.mark.parametrize(
    "text",
    [
        "Private ranges are 10.0.0.0/8 as in RFC 1918, 172.16.0.0/12 and 192.168.0.0/16.",
        "Examples use 192.0.2.0/24 (RFC 5737); the loopback network is 127.0.0.0/8.",
    ],
)
def test_a_private_network_is_no_address(text):
    assert find_address(text, None) is None


@pytest.mark.parametrize(
    "text",
    [
        *("fetch 93.184.216.34/24", "see 93.184.216.0/24", "10.0.0.1/8", "10.0.0.0/8/x", "10.0.0.0/8?q=1", "10.0.0.0"),
        *(
            "10.0.0.0/33",
            "10.0.0.0/8:80",
            "10.0.0.0/8a",
            "10.0.0.0/8 and 93.184.216.34",
            "http://10.0.0.0/8",
            "10.0.0.0/8.x",
        ),
    ],
)
def test_what_can_be_opened_stays_an_address(text):
    assert find_address(text, None) is not None
