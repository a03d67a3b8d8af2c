"""Foreign text made inert, and had back byte for byte."""

import pytest
from hypothesis import given, settings, strategies as st

from rubricem_env.scaffold.grammar import RESERVED
from rubricem_env.scaffold.lexer import find_tags
from rubricem_env.scaffold.untrusted import neutralize, restore
from tests.rubricem_env.scaffold.fragments import emissions

CHAT_SPECIALS = [
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_response>"),  # Qwen
    *("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|python_tag|>"),  # Llama 3
    *("<s>", "</s>", "<<SYS>>", "<</SYS>>", "[INST]", "[/INST]"),  # Llama 2
    *("<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<pad>", "<unk>"),  # Gemma
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[SYSTEM_PROMPT]"),  # Mistral
    *("<\uff5cbegin\u2581of\u2581sentence\uff5c>",),  # DeepSeek
]
foreign = st.lists(emissions | st.sampled_from([*CHAT_SPECIALS, "\\", "<\\", "[\\"]), max_size=6).map("".join)


@settings(max_examples=500)
@given(foreign)
def test_neutralised_text_can_be_had_back_byte_for_byte(text):
    assert restore(neutralize(text)) == text
    assert restore(neutralize(neutralize(text))) == neutralize(text)


@pytest.mark.no_cover
@settings(max_examples=500)
@given(foreign)
def test_neutralised_text_holds_no_tag_and_no_chat_special(text):
    inert = neutralize(text)
    assert find_tags(inert) == []
    assert [special for special in CHAT_SPECIALS if special in inert] == []


@pytest.mark.no_cover
@settings(max_examples=500)
@given(foreign)
def test_inside_our_own_tags_neutralised_text_adds_none(text):
    wrapped = f'<snippet id="S_1">{neutralize(text)}</snippet>'
    assert [token.closing for token in find_tags(wrapped)] == [False, True]


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("form", ["<{}>", "</{}>", "< / {} >", "<{} x='1'>", "\uff1c{}>", "<\u200b{}"])
def test_every_reserved_name_is_defused_in_every_form(name, form):
    text = form.format(name)
    assert neutralize(text) == text[0] + "\\" + text[1:]


@pytest.mark.parametrize("special", CHAT_SPECIALS)
def test_chat_specials_are_defused(special):
    assert special not in neutralize(special)
    assert len(neutralize(special)) == len(special) + 1


@pytest.mark.parametrize("text", ["a < b", "<p>answer</p>", "<answers>", "x[0] <= y", "[1]", "<review-of>", ""])
def test_harmless_text_is_untouched(text):
    assert neutralize(text) == restore(text) == text
