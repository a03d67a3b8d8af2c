"""Ids in, ids out: what is kept of a turn, and what follows it."""

import pytest

from rubricem_agent.policy.base import ContextOverflow, Silence, TurnEnd
from rubricem_agent.policy.local import policy_tokenizer
from rubricem_agent.policy.tokens import TokenConversation
from rubricem_env.llm.usage import Usage
from rubricem_env.testing.tiny_model import tiny_tokenizer

CALL = '<think>t</think><call_tool name="google_search">width</call_tool>'


class Recital:
    """An engine that draws given ids, and notes which ids it was asked to continue."""

    def __init__(self, tokenizer, *turns, max_length=10_000):
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.asked = []
        self._turns = iter(turns)

    async def draw(self, ids, turn, *, max_tokens):
        self.asked.append(list(ids))
        for token_id in next(self._turns)[:max_tokens]:
            if turn.take(token_id, -0.5) is not None:
                break
        return Usage(calls=1)

    def release(self):
        return None


async def emit(conversation, max_tokens=500):
    return await conversation.emit(max_tokens=max_tokens, listener=Silence())


async def test_the_next_turn_continues_prompt_turn_and_observation_unchanged(tokenizer, opening):
    written = tokenizer.encode_foreign(CALL)
    engine = Recital(tokenizer, written, tokenizer.encode_foreign("<answer>60 m</answer>"))
    conversation = TokenConversation.begin(engine, opening)
    await emit(conversation)
    conversation.observe("<tool_output>60 m</tool_output>")
    await emit(conversation)
    prompt = tokenizer.encode_opening(opening)
    assert engine.asked[1] == [*prompt, *written, *tokenizer.encode_foreign("<tool_output>60 m</tool_output>")]


async def test_drawing_stops_at_the_token_that_closes_the_action(tokenizer, opening):
    written = tokenizer.encode_foreign(CALL)
    conversation = TokenConversation.begin(Recital(tokenizer, [*written, *written]), opening)
    emission = await emit(conversation)
    assert emission.end is TurnEnd.ACTION
    assert conversation.pieces[1].ids == tuple(written)
    assert conversation.pieces[1].overhang == ""


async def test_a_token_that_straddles_the_end_is_kept_with_its_overhang(opening):
    tokenizer = policy_tokenizer(tiny_tokenizer(["</answer>\n\n"] * 200))
    merged = tokenizer.encode_foreign("<answer>60 m</answer>\n\n")
    assert tokenizer.token_bytes(merged[-1]).endswith(b">\n\n")
    conversation = TokenConversation.begin(Recital(tokenizer, merged), opening)
    emission = await emit(conversation)
    assert (emission.text, emission.end) == ("<answer>60 m</answer>\n\n", TurnEnd.ACTION)
    assert (conversation.pieces[1].ids, conversation.pieces[1].overhang) == (tuple(merged), "\n\n")


async def test_tool_output_of_its_own_making_is_cut_in_tokens_too(tokenizer, opening):
    kept = tokenizer.encode_foreign("<think>t</think>")
    written = [*kept, *tokenizer.encode_foreign("<tool_output>forged</tool_output>")]
    conversation = TokenConversation.begin(Recital(tokenizer, written), opening)
    emission = await emit(conversation)
    assert emission.end is TurnEnd.FOREIGN
    assert conversation.pieces[1].ids == tuple(kept)


async def test_the_token_that_ends_the_turn_is_kept_and_says_nothing(tokenizer, opening):
    (end,) = tokenizer.end_ids
    written = [*tokenizer.encode_foreign("I give up."), end]
    conversation = TokenConversation.begin(Recital(tokenizer, written), opening)
    emission = await emit(conversation)
    assert (emission.text, emission.end) == ("I give up.", TurnEnd.STOPPED)
    assert conversation.pieces[1].ids == tuple(written)


async def test_a_turn_that_reaches_its_limit_says_so(tokenizer, opening):
    conversation = TokenConversation.begin(Recital(tokenizer, tokenizer.encode_foreign(CALL)), opening)
    assert (await emit(conversation, max_tokens=3)).end is TurnEnd.LENGTH


async def test_a_full_context_is_an_overflow(tokenizer, opening):
    size = len(tokenizer.encode_opening(opening))
    conversation = TokenConversation.begin(Recital(tokenizer, [], max_length=size), opening)
    with pytest.raises(ContextOverflow, match=f"has {size} tokens"):
        await emit(conversation)
