"""Offsets as JavaScript counts them."""

from hypothesis import given, strategies as st

from rubricem_viewer.utf16 import character_at, count_units

TEXT = st.text(alphabet=st.sampled_from("a\u00e9\u2028\U0001f30a\U0010ffff"), max_size=30)


@given(TEXT, st.data())
def test_a_unit_is_what_an_encoder_counts_and_leads_back(text, data):
    offset = data.draw(st.integers(0, len(text)))
    unit = count_units(text[:offset])

    assert unit == sum(2 if char > "\uffff" else 1 for char in text[:offset])
    assert character_at(text, unit) == offset


def test_the_second_unit_of_a_pair_belongs_to_its_character():
    assert [character_at("a\U0001f30ab", unit) for unit in range(4)] == [0, 1, 1, 2]
