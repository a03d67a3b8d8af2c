"""How a passage is shown that makes a text unfit: whole up to sixty characters, and never as it would act."""

import pytest

from rubricem_env.scaffold.admission import Fault, find_fault


@pytest.mark.parametrize(
    ("passage", "shown"),
    [
        ("a" * 60, repr("a" * 60)),
        ("a" * 61, repr("a" * 57 + "...")),
        ("a\u202eb", repr("a\\u202eb")),
    ],
)
def test_a_passage_is_shown_in_sixty_characters(passage, shown):
    assert Fault("address", "holds an address", passage).shown == shown


def test_a_tag_is_shown_with_its_bracket():
    fault = find_fault("It closes </tool_output> early.", "criterion")
    assert (fault.code, fault.passage) == ("markup", "</tool_output> early.")
