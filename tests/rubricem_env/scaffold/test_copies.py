"""What was shown is known again word for word, wherever it stands and however it is written."""

from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.scaffold.copies import COPIED_WORDS, ShownText

SHOWN = "The harbour of Vell was dredged to nine metres in the spring of 1974 and has silted up since then."
OTHER = "Ferries to the outer islands leave from the northern quay twice a day between May and late September."


def test_a_run_of_words_is_known_again_without_case_and_punctuation():
    shown = ShownText([SHOWN])
    assert (
        shown.find_copy("It says: THE HARBOUR of Vell was - dredged to nine metres, in the spring of 1974") is not None
    )
    assert shown.find_copy("The harbour of Vell was dredged to nine metres in spring.") is None


def test_fewer_words_than_make_a_copy_are_none():
    words = SHOWN.split()
    shown = ShownText([SHOWN])
    assert shown.find_copies(" ".join(words[: COPIED_WORDS - 1])) == ()
    (whole,) = shown.find_copies(" ".join(words[:COPIED_WORDS]))
    assert (whole.start, whole.end) == (0, len(" ".join(words[:COPIED_WORDS])))


def test_copies_stand_where_they_are_said_to_and_those_that_overlap_are_one():
    text = f"As one page has it, {SHOWN} I would add: {OTHER.upper()} That is all."
    copies = ShownText([SHOWN, OTHER]).find_copies(text)
    assert [text[span.start : span.end] for span in copies] == [SHOWN.rstrip("."), OTHER.upper().rstrip(".")]


def test_words_are_found_where_folding_their_case_changes_their_length():
    shown = ShownText(["Die Straße am Fluß war im Frühling zwölf Wochen lang für alle Wagen gesperrt."])
    text = "DIE STRASSE AM FLUSS WAR IM FRÜHLING ZWÖLF WOCHEN LANG FÜR ALLE WAGEN GESPERRT"
    (copy,) = shown.find_copies(text)
    assert (copy.start, copy.end) == (0, len(text))


def test_only_what_tools_have_said_counts_of_a_trajectory():
    segments = (
        Segment(origin=Origin.POLICY, text="<think>Look.</think>"),
        Segment(origin=Origin.TOOL, text=SHOWN),
        Segment(origin=Origin.POLICY, text=OTHER),
    )
    shown = ShownText.in_trajectories([Trajectory(question="q", segments=segments)])
    assert len(shown.find_copies(SHOWN)) == 1
    assert shown.find_copies(OTHER) == ()
