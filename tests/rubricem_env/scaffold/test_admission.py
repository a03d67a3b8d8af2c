"""How a passage is shown that makes a text unfit: whole up to sixty characters, and never as it would act."""

import pytest

from rubricem_env.scaffold.admission import Fault


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
