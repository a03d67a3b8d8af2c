import pytest

from rubricem_agent.evals.extraction import MAX_ANSWER, Extracted, extract, judged_text, unboxed
from rubricem_env.domain.trajectory import AnswerFormat, Ending, Observation, Origin, Segment, Source, Trajectory
from rubricem_records.evaluations.rules import CitationMode, Extraction, Rules

SHOWN = '<tool_output>\n<snippet id="S_1">Tall Fox | https://a.example/fox\nIt is 60 m wide.</snippet>\n</tool_output>'

FOX = Source(title="Tall Fox", url="https://a.example/fox")


def rules(citations: CitationMode = "dropped", extraction: Extraction = "answer_tag") -> Rules:
    return Rules(mode="official", judge="", citations=citations, extraction=extraction)


def attempt(text: str, form: AnswerFormat = AnswerFormat.LONG, ending: Ending = Ending.ANSWERED) -> Trajectory:
    segments = (
        Segment(origin=Origin.PROMPT, text="How wide?"),
        Segment(origin=Origin.POLICY, text='<think>t</think><call_tool name="google_search">fox</call_tool>'),
        Segment(origin=Origin.TOOL, text=SHOWN, observation=Observation(snippet_ids=("S_1",), sources=(FOX,))),
        Segment(origin=Origin.POLICY, text=text),
    )
    return Trajectory(question="How wide?", answer_format=form, segments=segments, ending=ending)


@pytest.mark.parametrize(
    ("text", "form", "answer", "found"),
    [
        ("<answer>60 m</answer>", AnswerFormat.LONG, "60 m", "answer tag"),
        (r"<answer>\boxed{60 m}</answer>", AnswerFormat.EXACT, "60 m", "box in the answer tag"),
        (r"<answer>\boxed{\frac{1}{2}}</answer>", AnswerFormat.EXACT, r"\frac{1}{2}", "box in the answer tag"),
        # A box in a report is part of the report.
        (r"<answer>See \boxed{60 m}.</answer>", AnswerFormat.LONG, r"See \boxed{60 m}.", "answer tag"),
        ("<answer>60 m, and fur", AnswerFormat.LONG, "60 m, and fur", "unclosed answer tag"),
        ("<think>I am lost.</think>", AnswerFormat.LONG, "", "no answer"),
    ],
)
def test_the_answer_is_extracted_with_where_it_was_found(text, form, answer, found):
    extracted = extract(attempt(text, form), rules())

    assert (extracted.text, extracted.found) == (answer, found)


def test_dr_tulu_cuts_a_box_at_the_first_closing_brace_even_in_a_report():
    dr_tulu = rules("kept", "predecessor")

    extracted = extract(attempt(r"<answer>See \boxed{\frac{1}{2}}.</answer>"), dr_tulu)

    assert (extracted.text, extracted.found) == (r"\frac{1", "predecessor's rule")


CITED = '<answer>The fox is <cite id="S_1">60 m wide</cite>.</answer>'


@pytest.mark.parametrize(
    ("citations", "expected"),
    [
        ("dropped", "The fox is 60 m wide."),
        ("kept", 'The fox is <cite id="S_1">60 m wide</cite>.'),
        ("numbered", "The fox is 60 m wide [1].\n\nReferences:\n[1] https://a.example/fox"),
    ],
)
def test_cite_tags_are_treated_as_the_mode_says(citations, expected):
    assert extract(attempt(CITED), rules(citations)).text == expected


def test_how_the_episode_ended_goes_with_the_answer():
    assert extract(attempt("", ending=Ending.CALL_BUDGET), rules()).ending == "call_budget"


def test_an_answer_beyond_the_limit_is_empty_and_says_why():
    long = judged_text(Extracted("x" * (MAX_ANSWER + 1), "given answer"), rules())

    assert (long.text, long.found) == ("", "answer too long")


def test_an_unclosed_box_is_no_box():
    assert unboxed(r"\boxed{60 m") is None
