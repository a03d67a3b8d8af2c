"""What the troubleshooting page quotes is what the code says."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.code_sentences import GAP, sentences

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
QUOTED = re.findall(r"^> (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return list(sentences())


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_sentence_is_in_the_code(quoted, said):
    assert any(quoted in sentence for sentence in said)


def test_a_sentence_that_nobody_says_is_found_out(said):
    assert not any(f"the moon has {GAP} holes." in sentence for sentence in said)


def test_each_sentence_is_followed_by_what_to_do():
    text = PAGE.read_text(encoding="utf-8")
    for before, after in pairwise(QUOTED):
        between = text.split(f"> {before}\n", 1)[1].split(f"> {after}\n", 1)[0]
        assert len(between.split()) >= 4, before
