"""Our policies against a real `vllm serve`: text mode, token mode, and its log-probabilities against transformers'."""

from importlib.util import find_spec

import pytest

if find_spec("vllm") is None:
    pytest.skip("vllm is not installed; run make vllm-lane", allow_module_level=True)

from rubricem_agent.config.policy import PolicyConfig
from rubricem_agent.policy.base import Listener, Opening
from rubricem_agent.policy.local import load_model, load_tokenizer
from rubricem_agent.policy.text import Service
from rubricem_agent.policy.vllm import ServedTokenPolicy
from rubricem_agent.wiring.models import build_policy
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.http_failures import ContextOverflow
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.llm.usage import Meter
from rubricem_records.rollouts.sampling import Sampling
from tests.lanes.vllm.tiny_model import MAX_LENGTH
from tests.rubricem_agent.policy.shared import check_logprobs

OPENING = Opening("You are a researcher.", "How wide is the Tall Fox?")
OBSERVATION = "<tool_output>60 m, 川の幅</tool_output>"
ACTION = "<think>t</think><answer>60 m</answer>"
FORCED = f"{ACTION} and so on and on"


def service():
    timing = Timing.real(0)
    return Service("forced", Limiter(Rates(), timing), Meter(), timing)


def policy_of(spec):
    return build_policy(PolicyConfig(policy=spec, timeout=60.0), {})[0]


@pytest.fixture
async def in_tokens(served):
    policy = policy_of(f"vllm:tiny@{served.url}#{served.folder}")
    yield policy
    await policy.aclose()


async def two_turns(policy, temperature=1.0, seed=1):
    conversation = policy.open(OPENING, sampling=Sampling(temperature=temperature), seed=seed)
    first = await conversation.emit(max_tokens=24, listener=Listener())
    conversation.observe(OBSERVATION)
    return conversation, first, await conversation.emit(max_tokens=24, listener=Listener())


async def test_text_mode_continues_one_assistant_turn(served):
    policy = policy_of(f"openai:tiny@{served.url}")
    _, first, second = await two_turns(policy)
    await policy.aclose()
    assert first.text
    assert first.usage.output_tokens <= 24
    # The second turn reads the first, and the observation, after the same opening.
    assert second.usage.input_tokens > first.usage.input_tokens + 10


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
async def test_log_probabilities_are_those_that_transformers_computes(served, in_tokens, temperature):
    conversation, first, second = await two_turns(in_tokens, temperature)
    compared = check_logprobs(conversation, load_model(served.folder).cpu(), temperature, abs=1e-3)
    assert compared == first.usage.output_tokens + second.usage.output_tokens > 20


async def test_what_is_kept_of_a_turn_spells_its_text_and_is_what_the_next_turn_reads(in_tokens):
    conversation, first, second = await two_turns(in_tokens)
    prompt, written, observed, _ = conversation.pieces
    assert in_tokens.tokenizer.decode(written.ids).removesuffix("<|im_end|>") == first.text
    assert list(observed.ids) == in_tokens.tokenizer.encode_foreign(OBSERVATION)
    assert second.usage.input_tokens == len(prompt.ids) + len(written.ids) + len(observed.ids)


async def test_a_seed_draws_the_same_again_and_another_one_something_else(in_tokens):
    drawn = [(await two_turns(in_tokens, seed=seed))[0].pieces[1].ids for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


async def test_a_conversation_that_fills_the_context_ends_by_its_length(in_tokens):
    conversation = in_tokens.open(OPENING, sampling=Sampling(), seed=1)
    conversation.observe("0123456789 " * MAX_LENGTH)
    with pytest.raises(ContextOverflow, match=f"the server reads {MAX_LENGTH}"):
        await conversation.emit(max_tokens=8, listener=Listener())


async def test_a_model_that_is_not_served_is_named_in_a_sentence(served):
    policy = policy_of(f"vllm:other@{served.url}#{served.folder}")
    with pytest.raises(ModelError, match="no model 'other'; it has: tiny"):
        await policy.open(OPENING, sampling=Sampling(), seed=1).emit(max_tokens=8, listener=Listener())
    await policy.aclose()


class Forced(OpenAICompatibleModel):
    """A random model writes no tag by itself: this one is held to a text that goes on after its action."""

    def stream(self, path, body, *, max_tokens):
        return super().stream(path, {**body, "structured_outputs": {"regex": FORCED}}, max_tokens=max_tokens)


async def test_the_server_stops_at_the_closing_tag_and_the_turn_keeps_it(served):
    policy = ServedTokenPolicy(
        Forced("tiny", served.url, timeout=60.0), load_tokenizer(served.folder), service=service()
    )
    conversation = policy.open(OPENING, sampling=Sampling(), seed=1)
    emission = await conversation.emit(max_tokens=200, listener=Listener())
    await policy.aclose()
    assert (emission.text, emission.end) == (ACTION, "action")
    assert policy.tokenizer.decode(conversation.pieces[1].ids) == ACTION
    assert len(conversation.pieces[1].logprobs) == len(conversation.pieces[1].ids) == emission.usage.output_tokens
