"""Characters that nobody sees, and marks that pile up."""

import pytest

from rubricem_env.scaffold.unseen import find_unseen

ACUTE = "\u0301"


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "tabs\tand\nlines\r\n",
        "e" + ACUTE * 4,
        f"e{ACUTE * 4}e{ACUTE * 4}",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian with its joiner
        "\u2764\ufe0f",  # a heart with its variant
    ],
)
def test_what_is_seen_is_let_through(text):
    assert find_unseen(text) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("e" + ACUTE * 5, ACUTE),
        ("a\u200bb", "\u200b"),
        ("a\u200cb", "\u200c"),
        ("\u200d", "\u200d"),
        ("a\ufe0f", "\ufe0f"),
        ("a\u00adb", "\u00ad"),
        ("a\u3164b", "\u3164"),
        ("a\x00b", "\x00"),
        ("a\u2028b", "\u2028"),
        ("a\ue000b", "\ue000"),
    ],
)
def test_the_first_hidden_character_is_named(text, found):
    assert find_unseen(text) == found


def test_more_than_four_marks_on_a_letter_hide_text_and_four_do_not():
    mark = "\u0301"
    assert find_unseen(4 * mark + "a" + 4 * mark + "b") is None
    assert find_unseen("a" + 5 * mark) == mark
