"""What the tests of several policies need: a turn, a service, and a check against the model's own log-probabilities."""

import pytest
import torch

from rubricem_agent.policy.base import Listener
from rubricem_agent.policy.text import Service
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.usage import Meter
from tests.fakes import ManualTime

CORPUS = ("<think>How wide is the Tall Fox?</think>", "The width of Tall Fox is 60 m. Größe: 12 µm — naïve 川の幅 🦊")
CALL = '<think>t</think><call_tool name="google_search">width</call_tool>'
ANSWER = "<think>t</think><answer>60 m</answer>"
OBSERVATION = "<tool_output>60 m</tool_output>"


class Ears(Listener):
    """Keeps what it hears."""

    def __init__(self):
        self.heard = ""
        self.restarts = 0

    def wrote(self, text):
        self.heard += text

    def restarted(self):
        self.restarts += 1
        self.heard = ""


def service(limits=None, attempts=3):
    timing = ManualTime().timing()
    return Service("m", Limiter(Rates(), timing), Meter(limits), timing, RetryPolicy(attempts=attempts))


async def turn(conversation, max_tokens=200):
    return await conversation.emit(max_tokens=max_tokens, listener=Listener())


def ids_of(conversation):
    return [token_id for piece in conversation.pieces for token_id in piece.ids]


def check_logprobs(conversation, model, temperature, *, abs=1e-4):
    """Compare each log-probability with that of transformers at the temperature; 0 means 1. Returns their number."""
    ids = ids_of(conversation)
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0].float()
    expected = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
    at, compared = 0, 0
    for piece in conversation.pieces:
        for index, logprob in enumerate(piece.logprobs):
            assert logprob == pytest.approx(expected[at + index - 1, piece.ids[index]].item(), abs=abs)
            compared += 1
        at += len(piece.ids)
    return compared
