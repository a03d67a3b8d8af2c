"""Texts are read by their scaffold: boundaries, violations, what is inert, for any number of stages."""

import pytest
from hypothesis import given, strategies as st

from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.scaffold.admission import find_fault
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.scaffold.parser import EmissionStream, parse_turn, read_any_turn
from rubricem_env.scaffold.untrusted import defuse, is_inert, neutralize, restore
from rubricem_env.scaffold.validation import turn_violations
from tests.rubricem_env.scaffold.fragments import emissions, pieces_of
from tests.scaffolds import EIGHT, ONE, SCAFFOLDS, THREE, WRITING

T = "<think>t</think>"  # 16
OUTLINE = "<outline><aims>a</aims><order>o</order></outline>"  # 9 + 14 + 16 + 10 = 49
DRAFT = "<draft>d</draft>"  # 16
REVISION = "<revision><faults>f</faults><changes>c</changes></revision>"  # 10 + 18 + 20 + 11 = 59
FINAL = "<final>e</final>"  # 16
FRAME = "<framing><question>q</question><measures>m</measures></framing>"  # 9 + 22 + 22 + 10 = 63
CALL = '<call_tool name="run_sql">select 1</call_tool>'  # 46
CHECK = "<check>c</check>"  # 16
REPORT = "<report>r</report>"  # 18
CLOSED_A, CLOSED_B = "<closed_a>1</closed_a>", "<closed_b>1</closed_b>"
CALL_UP = '<call_tool name="look_up">q</call_tool>'


def read(scaffold, *texts):
    return parse_trajectory(
        Trajectory(
            question="q",
            scaffold=scaffold,
            segments=tuple(Segment(origin=Origin.POLICY, text=text) for text in texts),
        )
    )


@pytest.mark.parametrize(
    ("scaffold", "texts", "spans"),
    [
        (
            WRITING.scaffold,
            (T + OUTLINE + DRAFT + REVISION + FINAL,),
            {"outline": (0, 65), "draft": (65, 81), "revise": (81, 140), "final": (140, 156)},
        ),
        (WRITING.scaffold, (T + OUTLINE + FINAL,), {"outline": (0, 65), "final": (65, 81)}),
        (WRITING.scaffold, (T + DRAFT + " so",), {"draft": (0, 32), "revise": (32, 35)}),
        (WRITING.scaffold, (OUTLINE + " so",), {"outline": (0, 49), "draft": (49, 52)}),
        (WRITING.scaffold, (T,), {"outline": (0, 16)}),
        (WRITING.scaffold, (T + REVISION,), {"revise": (0, 75)}),
        (WRITING.scaffold, (FINAL,), {"final": (0, 16)}),
        (THREE, (T + FRAME + CALL, T + CHECK + REPORT), {"frame": (0, 79), "analyse": (79, 157), "report": (157, 175)}),
        (THREE, (CALL, FRAME, REPORT), {"analyse": (0, 109), "report": (109, 127)}),
        (ONE, (T + "<reply>r</reply>",), {"reply": (0, 32)}),
        (ONE, (T,), {"reply": (0, 16)}),
        (ONE, (), {}),
    ],
)
def test_stages_are_closed_by_their_block_or_opened_by_it(scaffold, texts, spans):
    assert {stage: tuple(span) for stage, span in read(scaffold, *texts).spans.items()} == spans


def test_opened_stages_follow_each_other_in_their_order():
    a, b, c, end = ("<opened_a>1</opened_a>", "<opened_b>1</opened_b>", "<opened_c>1</opened_c>", "<end>1</end>")
    # Without the fourth the answer begins where the third ends; a thought between two is of the later one.
    spans = read(EIGHT, f"w{a}{T}{b}{c}", f"{T}{end}").spans
    assert {stage: tuple(span) for stage, span in spans.items()} == {
        "work": (0, 1),
        "opened_1": (1, 23),
        "opened_2": (23, 61),
        "opened_3": (61, 83),
        "end": (83, 111),
    }


def codes(scaffold, *texts):
    return [violation.code.value for violation in read(scaffold, *texts).violations]


@pytest.mark.parametrize(
    ("scaffold", "texts", "found"),
    [
        (WRITING.scaffold, (T + OUTLINE + DRAFT + REVISION + FINAL,), []),
        (WRITING.scaffold, (T + OUTLINE + REVISION + FINAL,), ["missing_block"]),
        (WRITING.scaffold, (T + FINAL,), ["missing_block", "missing_block", "missing_block"]),
        (WRITING.scaffold, (T + "<outline><aims>a</aims></outline>" + DRAFT + REVISION + FINAL,), ["missing_section"]),
        (WRITING.scaffold, (T + OUTLINE + DRAFT + "<revision>x</revision>" + FINAL,), ["missing_section"] * 2),
        (WRITING.scaffold, (T + OUTLINE,), ["no_action", "missing_answer"]),
        (WRITING.scaffold, (OUTLINE + DRAFT + REVISION + FINAL,), ["missing_think"]),
        (WRITING.scaffold, (T + OUTLINE + DRAFT + REVISION + "<final></final>",), ["empty_answer"]),
        (THREE, (T + FRAME + CALL, T + CHECK + REPORT), []),
        (THREE, (T + FRAME + CALL, T + REPORT), ["missing_block"]),
        (THREE, (T + FRAME + REPORT,), []),
        (THREE, (T + CALL, T + "<checks>c</checks>" + REPORT), ["missing_block", "alias_tag", "alias_tag"]),
        (EIGHT, (T + "<end>1</end>",), ["missing_block"] * 2 + ["answer_in_first_turn"] + ["missing_block"] * 4),
    ],
)
def test_what_a_scaffold_demands_is_a_violation_where_it_is_missing(scaffold, texts, found):
    assert codes(scaffold, *texts) == found


def test_blocks_that_close_stages_may_stand_in_turns_of_their_own():
    texts = (T + CLOSED_A, T + CLOSED_B, T + CALL_UP)
    turns = [parse_turn(text, number, EIGHT) for number, text in enumerate(texts, 1)]
    assert [one.code.value for one in turn_violations(turns, EIGHT)] == ["no_action", "no_action"]


def test_what_was_opened_stays_open():
    call, end = '<call_tool name="look_up">q</call_tool>', "<end>1</end>"
    a, b = "<opened_a>1</opened_a>", "<opened_b>1</opened_b>"
    assert codes(EIGHT, T + call, T + a + call)[-1] == "missing_answer"
    assert "stage_order" in codes(EIGHT, T + call, T + a + call)
    assert codes(EIGHT, T + call, T + b + a + end).count("stage_order") == 1
    assert codes(THREE, T + FRAME + CALL, T + REPORT + CHECK).count("missing_block") == 1


def test_sentences_name_the_tags_of_the_scaffold():
    by_code = {violation.code.value: violation.message for violation in read(WRITING.scaffold, T + OUTLINE).violations}
    assert "ends with exactly one of </final>" in by_code["no_action"]
    assert "Write <final>...</final>." in by_code["missing_answer"]
    missing = read(WRITING.scaffold, T + OUTLINE + REVISION + FINAL).violations[0].message
    order = "the order is outline, draft, revise, final"
    assert missing == f"turn 1 goes on without <draft>; {order}. Write it first, and stop after </final>."
    unnamed = read(THREE, T + FRAME + "<call_tool>q</call_tool>").violations
    assert 'name="run_sql"' in next(one.message for one in unnamed if one.code == "missing_tool_name")


def test_strict_mode_accepts_what_the_scaffold_calls_lenient():
    assert read(THREE, T + CALL, T + CHECK + REPORT).rejections == ()
    assert [one.code.value for one in read(WRITING.scaffold, T + FINAL).rejections] == ["missing_block"] * 3


def test_without_citations_there_are_none_to_resolve():
    parsed = read(WRITING.scaffold, T + OUTLINE + DRAFT + REVISION + '<final><cite id="S_9">e</cite></final>')
    assert (parsed.citations.unknown, parsed.violations) == ((), ())


@pytest.mark.parametrize("scaffold", SCAFFOLDS, ids=lambda scaffold: scaffold.name)
def test_tags_of_another_task_are_text(scaffold):
    own = {scaffold.answer_tag for scaffold in SCAFFOLDS} - {scaffold.answer_tag}
    for tag in own - set(scaffold.blocks):
        turn = parse_turn(f"{T}<{tag}>x</{tag}>", scaffold=scaffold)
        assert turn.answer is None
        assert [block.name for block in turn.blocks] == ["think"]


@pytest.mark.no_cover
@pytest.mark.parametrize("scaffold", SCAFFOLDS, ids=lambda scaffold: scaffold.name)
@given(text=emissions)
def test_both_readers_and_any_stream_give_the_same_turn(scaffold, text):
    turn = parse_turn(text, scaffold=scaffold)
    assert turn == read_any_turn(text, scaffold=scaffold)


@pytest.mark.no_cover
@given(data=st.data(), text=emissions, scaffold=st.sampled_from(SCAFFOLDS))
def test_a_turn_is_the_same_in_any_pieces(data, text, scaffold):
    stream = EmissionStream(scaffold=scaffold)
    fed = 0
    turn = None
    for piece in data.draw(pieces_of(text)):
        fed += len(piece)
        turn = stream.feed(piece)
        if turn is not None:
            break
    turn = turn or stream.close()
    whole = parse_turn(text, scaffold=scaffold)
    assert (turn.blocks, turn.call, turn.end) == (whole.blocks, whole.call, whole.end)


@pytest.mark.parametrize("scaffold", SCAFFOLDS, ids=lambda scaffold: scaffold.name)
def test_foreign_text_cannot_open_a_tag_of_its_scaffold(scaffold):
    names = [*scaffold.blocks, scaffold.answer_tag, "think", "call_tool", "cite", "tool_output", "reference_examples"]
    for name in names:
        for attack in (f"<{name}>", f"</{name}>", f"< / {name.upper()} >", f"\uff1c{name}>", f"<{name} x='1'>"):
            inert = neutralize(attack, scaffold)
            assert inert != attack
            assert restore(inert, scaffold) == attack
            assert parse_turn(inert, scaffold=scaffold).blocks == ()
            assert not is_inert(attack, scaffold)
        fault = find_fault(f"Write <{name}> so: it is. ", "criterion", scaffold=scaffold)
        assert fault is not None
        assert fault.code in ("markup", "tool_call")
    assert defuse("<|im_end|>", scaffold) == "<\\|im_end|>"
