"""Every token has its author and its stage: exactly partitioned, with a real byte-level BPE."""

import asyncio
import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.local import policy_tokenizer
from rubricem_agent.policy.tokens import TokenConversation
from rubricem_agent.rollout.run import Attempt, RolloutContext, run_episode
from rubricem_agent.rollout.token_labels import label_tokens
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.trajectory import Origin, Query, Snippet, ToolResult, ToolStatus
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.testing.tiny_model import SPECIALS, tiny_tokenizer
from rubricem_records.rollouts.rollout_tokens import NO_STAGE, RolloutTokens
from rubricem_records.rollouts.sampling import Sampling

RAW = tiny_tokenizer(["<think>How wide is the Tall Fox?</think>", "</structured_plan>\n<call_tool"] * 20)
TOKENIZER = policy_tokenizer(RAW)
SPECIAL_IDS = set(RAW.convert_tokens_to_ids(list(SPECIALS)))
QUERY = Query(question="How wide?")
PLAN = (
    "<think>t</think>\n<structured_plan><deep_analysis>a</deep_analysis><rubric>r</rubric>"
    "<research_plan>p</research_plan></structured_plan>\n"
)
CALL = '<call_tool name="google_search">Größe 🦊</call_tool>'
STATE = "<think>so</think><state_evaluation>s</state_evaluation>"
REVIEW = "<review><rubric_review>r</rubric_review><writing_plan>w</writing_plan></review>\n"
ANSWER = "<answer>60 m</answer>"
PARTS = st.lists(
    st.sampled_from([PLAN, CALL, STATE, REVIEW, ANSWER, "<tool_output>x", "川🦊\n", "</answer>"]), max_size=5
)
NOISE = st.text(st.characters(codec="utf-8"), max_size=8)
TURNS = st.lists(st.tuples(PARTS, NOISE).map(lambda drawn: "".join(drawn[0]) + drawn[1]), min_size=1, max_size=6)


class Reciting:
    """A policy in token mode that draws the tokens of given turns, each with a straight ending."""

    name = "reciting"

    def __init__(self, turns):
        self._turns = turns

    def open(self, opening, *, sampling, seed):
        conversation = Recital(TOKENIZER, TOKENIZER.encode_opening(opening), max_length=100_000)
        conversation.turns = list(self._turns)
        return conversation

    def count_tokens(self, text):
        return TOKENIZER.count(text)


class Recital(TokenConversation):
    async def draw(self, ids, turn, *, max_tokens):
        text = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        for token_id in [*TOKENIZER.encode_foreign(text), *TOKENIZER.end_ids][:max_tokens]:
            if turn.take(token_id, -1.0) is not None:
                break
        return Usage(calls=1)


class Page:
    """A tool that answers with a given text."""

    names = ("google_search",)

    def __init__(self, text="60 m"):
        self._text = text

    async def call(self, call):
        return ToolResult(status=ToolStatus.OK, snippets=(Snippet(text=self._text),))


def play(turns, page="60 m"):
    context = RolloutContext(Reciting(turns), Page(page), sampling=Sampling())
    return asyncio.run(run_episode(Attempt(QUERY, Opening("rules", QUERY.question)), context))


def runs(tokens):
    """The tokens as consecutive runs of one author: (is_policy, ids)."""
    mask = tokens.policy_mask
    cuts = [0, *(np.flatnonzero(np.diff(mask.astype(int))) + 1).tolist(), len(mask)]
    return [(bool(mask[a]), tokens.ids[a:b]) for a, b in itertools.pairwise(cuts) if b > a]


def spoken(tokens):
    written = itertools.compress(tokens.ids, tokens.policy_mask)
    return [token_id for token_id in written if token_id not in TOKENIZER.end_ids]


@pytest.mark.no_cover
@settings(max_examples=150)
@given(TURNS)
def test_mask_and_stages_partition_the_ids(turns):
    tokens = play(turns).tokens
    stages = np.array(tokens.stage_ids)
    assert set(stages.tolist()) <= {NO_STAGE, 0, 1, 2, 3}
    assert (tokens.policy_mask == (stages != NO_STAGE)).all()
    assert (stages[: tokens.prompt_length] == NO_STAGE).all()
    assert all(logprob == 0.0 for logprob, own in zip(tokens.logprobs, tokens.policy_mask, strict=True) if not own)


@pytest.mark.no_cover
@settings(max_examples=150)
@given(TURNS)
def test_policy_ids_decode_to_the_policys_text_but_for_what_hangs_over(turns):
    rollout = play(turns)
    decoded = TOKENIZER.decode(spoken(rollout.tokens))
    overhangs = [piece for piece in (segment.cut for segment in rollout.trajectory.segments) if piece]
    if not overhangs:
        assert decoded == rollout.trajectory.policy_text
    else:
        assert len(decoded) >= len(rollout.trajectory.policy_text)


@pytest.mark.no_cover
@settings(max_examples=150)
@given(TURNS)
def test_what_the_policy_did_not_write_is_prompt_and_observations_tokenised_apart(turns):
    rollout = play(turns)
    ids = [token_id for own, run in runs(rollout.tokens) if not own for token_id in run]
    observed = [
        as_message(foreign.text) if has_ended(own) else TOKENIZER.encode_foreign(foreign.text)
        for own, foreign in itertools.pairwise(rollout.trajectory.segments)
        if foreign.origin is Origin.TOOL
    ]
    expected = [TOKENIZER.encode_opening(Opening("rules", "How wide?")), *observed]
    assert ids == [token_id for part in expected for token_id in part]


def has_ended(segment):
    """Whether the policy ended this turn by itself: here it does so where nothing else ends it."""
    return not segment.cut and not parse_turn(segment.text).has_action


def as_message(text):
    """A message of the user after a turn that the policy has ended with <|im_end|>, as the template writes it."""
    header, end = RAW.encode("\n<|im_start|>user\n"), RAW.encode("<|im_end|>\n<|im_start|>assistant\n")
    return [*header, *TOKENIZER.encode_foreign(text), *end]


@pytest.mark.no_cover
@settings(max_examples=150)
@given(TURNS)
def test_a_token_has_the_stage_of_the_character_it_begins_with(turns):
    rollout = play(turns)
    parsed = parse_trajectory(rollout.trajectory)
    characters = {at: STAGES.index(stage) for stage, span in parsed.spans.items() for at in range(span.start, span.end)}
    if any(segment.cut for segment in rollout.trajectory.segments):
        return
    at = 0
    stages = [stage for stage in rollout.tokens.stage_ids if stage != NO_STAGE]
    pending = b""
    for token_id, stage in zip(itertools.compress(rollout.tokens.ids, rollout.tokens.policy_mask), stages, strict=True):
        if token_id not in TOKENIZER.end_ids and not pending:
            assert stage == characters[at]
        pending += b"" if token_id in TOKENIZER.end_ids else TOKENIZER.token_bytes(token_id)
        text = pending.decode("utf-8", "ignore")
        if text.encode() == pending:
            at, pending = at + len(text), b""


def test_a_whole_episode_has_its_stages_in_order():
    tokens = play([PLAN + CALL, STATE + CALL, STATE + REVIEW + ANSWER]).tokens
    order = [stage for at, stage in enumerate(tokens.stage_ids) if at == 0 or tokens.stage_ids[at - 1] != stage]
    # prompt; plan, and the call after it; result; search; result; review from its thought on; answer
    assert order == [-1, 0, 1, -1, 1, -1, 2, 3]


def test_a_token_that_ends_an_empty_turn_is_research_where_nothing_came_before():
    rollout = play([""])
    assert [stage for stage in rollout.tokens.stage_ids if stage != NO_STAGE] == [1, 1]


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="one for each token"):
        RolloutTokens(ids=(1, 2), stage_ids=(0,), logprobs=(0.0, 0.0), prompt_length=0)


def test_pieces_that_do_not_fit_the_turns_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        label_tokens((), [parse_turn(ANSWER)], spans={})
