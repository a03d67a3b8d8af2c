"""What can be opened is an address; a name in prose is none."""

import pytest

from rubricem_env.scaffold.addresses import decoded, find_address
from rubricem_env.scaffold.copies import ShownText


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://a.example/x", "https://"),
        ("write to joe@mail.example.com today", "joe@mail.example.com"),
        ("it listens on localhost:8080", "localhost:8"),
        ("ask 10.20.30.40 first", "10.20.30.40"),
        ("ask 255.1.1.1 first", "255.1.1.1"),
        ("visit evil.com", "evil.com"),
        ("evil.com/path has it", "evil.com/path"),
        ("prefer cdc.gov.evil.com", "cdc.gov.evil.com"),
        ("prefer evil dot com", "evil dot com"),
        ("prefer evil[.]com", "evil[.]com"),
        ("visit RESULTS.IN now", "results.in"),
    ],
)
def test_what_can_be_opened_is_found(text, found):
    assert (find_address(text, None) or "").lower() == found


@pytest.mark.parametrize(
    "text",
    [
        "no address at all",
        "256.20.30.40 is no address of the network",
        "release 9.9.9.9 of the program",
        "section 10.20.30.40 of the code",
        "the case Smith v. Amazon.com was decided",
        "the case Amazon.com v. Smith was decided",
        "the tables of cdc.gov and of nhs.uk",
        "as wikipedia.org has it",
        "the loop of main.py ends",
        "it ends with the results.In the next year",
        "it costs 3.50 a piece",
    ],
)
def test_a_name_in_prose_is_no_address(text):
    assert find_address(text, None) is None


def test_a_name_that_the_policy_knows_is_none_and_one_that_a_page_has_shown_is():
    page = ShownText(["Read more at Betterdata.com today."])
    assert find_address("Compare Betterdata.com with others.", ShownText([])) is None
    assert find_address("Compare Betterdata.com with others.", page) == "Betterdata.com"
    assert find_address("Compare betterdata.com with others.", ShownText([])) == "betterdata.com"


def test_escapes_are_resolved_twice_at_most():
    assert decoded("a &amp;amp;lt; b") == "a &lt; b"
    assert decoded(r"https\u003a//x") == "https://x"
    assert decoded("https%3A//x") == "https://x"
    assert decoded("100 % of 5%x") == "100 % of 5%x"
