"""A policy in its other role: one conversation for each candidate."""

import pytest

from rubricem_agent.policy.base import Emission, Opening, Sampling, TokenSegment
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.reflection.candidates import Candidate, PolicyCandidates
from rubricem_env.domain.errors import ModelError

OPENING = Opening("Be strict.", "Reflect.")
SAMPLING = Sampling(temperature=0.7, max_turn_tokens=50)


class Echo:
    def __init__(self, text):
        self._text = text

    def emission(self, observation):
        return f"{self._text} on {observation}"


class Tokens:
    """A conversation in token mode that remembers whether it was closed."""

    def __init__(self, seed):
        self.seed = seed
        self.is_closed = False
        self.pieces = (TokenSegment(ids=(1,)), TokenSegment(ids=(seed,), logprobs=(-0.1,), starts=(0,)))

    async def emit(self, *, max_tokens, listener):
        if self.seed == 13:
            raise ModelError("the server is down")
        return Emission(f"{self.seed} of {max_tokens}", "stopped")

    def close(self):
        self.is_closed = True


class TokenPolicy:
    name = "tokens"

    def __init__(self):
        self.opened = []

    def count_tokens(self, text):
        return len(text)

    def open(self, opening, *, sampling, seed):
        self.opened.append(Tokens(seed))
        return self.opened[-1]


async def test_each_seed_has_a_candidate_in_its_order():
    source = PolicyCandidates(ScriptedPolicy(lambda opening, seed: Echo(f"seed {seed}"), name="scripted"))
    candidates = await source.sample(OPENING, sampling=SAMPLING, seeds=[3, 1])
    assert [candidate.text for candidate in candidates] == ["seed 3 on Reflect.", "seed 1 on Reflect."]
    assert source.name == "scripted"


async def test_the_tokens_of_a_candidate_are_kept():
    candidates = await PolicyCandidates(TokenPolicy()).sample(OPENING, sampling=SAMPLING, seeds=[7])
    pieces = (TokenSegment(ids=(1,)), TokenSegment(ids=(7,), logprobs=(-0.1,), starts=(0,)))
    assert candidates == (Candidate(text="7 of 50", pieces=pieces),)


async def test_a_failure_is_raised_as_itself_and_every_conversation_is_closed():
    policy = TokenPolicy()
    with pytest.raises(ModelError, match="the server is down"):
        await PolicyCandidates(policy).sample(OPENING, sampling=SAMPLING, seeds=[1, 13])
    assert all(conversation.is_closed for conversation in policy.opened)
