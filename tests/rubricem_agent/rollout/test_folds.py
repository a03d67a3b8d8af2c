"""Long episodes in a bounded context: what a chat server is sent, and what tokens a trainer gets."""

import asyncio
import itertools

import numpy as np
import pytest
import torch

from rubricem_agent.policy.base import Listener, Opening
from rubricem_agent.policy.gemini import GeminiPolicy
from rubricem_agent.policy.local import LocalPolicy, policy_tokenizer
from rubricem_agent.policy.openai_compatible import OpenAICompatiblePolicy
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.rollout.run import Attempt, RolloutContext, run_episode
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.trajectory import Ending, Origin, Query, Snippet, ToolResult, dump_trajectory, load_trajectory
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.env.view import views_of
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.llm.usage import Usage
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from rubricem_env.tools.render import estimate_tokens
from rubricem_records.rollouts.rollout_tokens import NO_STAGE
from rubricem_records.rollouts.sampling import Sampling
from tests.rubricem_agent.policy.shared import service
from tests.rubricem_agent.policy.test_openai_compatible import KEY
from tests.rubricem_agent.rollout.test_token_labels import TOKENIZER, Recital, Reciting

QUERY = Query(question="How wide is the Tall Fox?")
OPENING = Opening("rule " * 200, QUERY.question)
LIMITS = EpisodeLimits(max_calls=100, max_turns=104, max_tokens=200_000)
CONTEXT = ContextLimits(fold_at=2_000, fold_to=1_200, keep=2)
PLAN = (
    "<think>t</think><structured_plan><deep_analysis>a</deep_analysis><rubric>r</rubric>"
    "<research_plan>p</research_plan></structured_plan>"
)
ANSWER = '<think>t</think><answer><cite id="S_1">60 m</cite></answer>'


class Pages:
    """A tool with another page for each call."""

    names = ("google_search",)

    async def call(self, call):
        return ToolResult.found([Snippet(title=f"On {call.query}", text="word " * 100)] * 2)


def turn(number, calls=100):
    if number >= calls:
        return ANSWER
    weighed = f"<think>t{number}</think><state_evaluation>Fact {number}.</state_evaluation>" if number else PLAN
    return f'{weighed}<call_tool name="google_search">query {number}</call_tool>'


def play(policy, context=CONTEXT, listener=None, opening=OPENING, max_turn_tokens=500, temperature=1.0):
    played = RolloutContext(
        policy, Pages(), LIMITS, Sampling(temperature=temperature, max_turn_tokens=max_turn_tokens), context
    )
    return run_episode(Attempt(QUERY, opening, seed=5), played, listener=listener)


def served(calls=100):
    """A chat server whose model writes the next turn, by how many calls it made in the whole episode."""
    number = itertools.count()
    return ModelServer(lambda request: ModelReply(turn(next(number), calls)))


async def chat(calls=100, context=CONTEXT, listener=None, **options):
    server = served(calls)
    with serve_loopback(server) as url:
        model = OpenAICompatibleModel("m", f"{url}/v1", key=KEY, timeout=5.0)
        policy = OpenAICompatiblePolicy(model, service(), **options)
        try:
            rollout = await play(policy, context, listener)
        finally:
            await policy.aclose()
    return rollout, [request.body for request in server.asked]


async def test_a_chat_server_is_sent_no_more_than_fold_at_in_an_episode_of_a_hundred_calls():
    rollout, bodies = await chat()
    assert rollout.trajectory.ending is Ending.ANSWERED
    assert len(bodies) == 101
    sent = [sum(estimate_tokens(message["content"]) for message in body["messages"]) for body in bodies]
    assert max(sent) <= 2_000
    whole = sum(estimate_tokens(segment.text) for segment in rollout.trajectory.segments)
    assert whole > 10 * max(sent)
    # What the server is sent is the view, and the record gives it again byte for byte.
    record = load_trajectory(dump_trajectory(rollout.trajectory))
    for body, view in zip(bodies, views_of(record), strict=True):
        assert body["messages"] == [{"role": "system", "content": OPENING.system}, *view.messages]


async def test_an_unfolded_conversation_is_sent_as_it_always_was():
    plain, sent = await chat(8, ContextLimits())
    unfolded, again = await chat(8, ContextLimits(fold_at=100_000))
    assert sent == again
    assert plain.model_dump_json() == unfolded.model_dump_json()
    assert len(sent[-1]["messages"]) == 2 + 2 * 8


async def test_a_server_that_continues_one_turn_is_sent_the_view_as_one_text():
    rollout, bodies = await chat(30, layout="inline")
    assert rollout.trajectory.folds
    prompt = f"[system]{OPENING.system}[user]{QUERY.question}[assistant]"
    for body, view in zip(bodies, views_of(rollout.trajectory), strict=True):
        assert body["prompt"] == prompt + view.text.removeprefix(QUERY.question)


async def test_gemini_is_sent_the_view():
    server = served(30)
    with serve_loopback(server) as url:
        policy = GeminiPolicy("m", KEY, service=service(), base_url=url, timeout=5.0)
        try:
            rollout = await play(policy)
        finally:
            await policy.aclose()
    assert rollout.trajectory.folds
    for request, view in zip(server.asked, views_of(rollout.trajectory), strict=True):
        texts = ["".join(part["text"] for part in content["parts"]) for content in request.body["contents"]]
        assert texts == [message["content"] for message in view.messages]


async def test_a_listener_learns_of_each_fold():
    class Ears(Listener):
        views = ()

        def folded(self, view):
            self.views = (*self.views, view)

    ears = Ears()
    rollout, _ = await chat(20, listener=ears)
    assert len(ears.views) == len(rollout.trajectory.folds) > 1


async def test_a_scripted_writer_reads_each_result_once_and_remembers_it():
    read = []

    class Writer:
        def emission(self, observation):
            read.append(observation)
            return turn(len(read) - 1)

    rollout = await play(ScriptedPolicy(lambda opening, seed: Writer()))
    assert read[1:] == [segment.text for segment in rollout.trajectory.segments if segment.origin is Origin.TOOL]


async def test_a_prompt_without_room_is_a_failed_rollout_that_says_so():
    rollout = await play(ScriptedPolicy(lambda opening, seed: None), opening=Opening("rule " * 2_000, "q"))
    assert not rollout.is_valid
    assert "the prompt has 2501 tokens and context.fold_to is 1200" in rollout.failure


# -- tokens


class Spoken(Reciting):
    """Writes the turns of a long episode in tokens."""

    def __init__(self, turns, kind=Recital):
        super().__init__(turns)
        self._kind = kind

    def open(self, opening, *, sampling, seed):
        conversation = self._kind(TOKENIZER, TOKENIZER.encode_opening(opening), max_length=100_000)
        conversation.turns = list(self._turns)
        return conversation


LONG = ContextLimits(fold_at=5_000, fold_to=3_000, keep=2)


@pytest.fixture(scope="module")
def spoken():
    policy = Spoken([turn(number, 24) for number in range(25)])
    return asyncio.run(play(policy, LONG, max_turn_tokens=5_000))


def windows(rollout):
    tokens = rollout.tokens
    for window in tokens.windows:
        yield tokens.ids[window], tokens.stage_ids[window], tokens.logprobs[window]


def test_each_generated_token_stands_in_one_window_in_the_order_of_the_record(spoken):
    written = [
        token_id
        for ids, stages, _ in windows(spoken)
        for token_id, stage in zip(ids, stages, strict=True)
        if stage != NO_STAGE
    ]
    turns = [segment.text for segment in spoken.trajectory.segments if segment.origin is Origin.POLICY]
    assert TOKENIZER.decode(written) == "".join(turns)
    assert len(spoken.tokens.windows) == len(spoken.trajectory.folds) + 1 > 3


def test_a_window_begins_with_its_view_and_ends_with_what_was_drawn_last(spoken):
    views = list(views_of(spoken.trajectory))
    first = [0, *(fold.turn for fold in spoken.trajectory.folds)]
    opening = TOKENIZER.encode_opening(OPENING)
    for (ids, stages, _), number in zip(windows(spoken), first, strict=True):
        prompt = stages.index(next(stage for stage in stages if stage != NO_STAGE))
        text = views[number].text.removeprefix(QUERY.question)
        assert list(ids[: len(opening)]) == opening
        assert TOKENIZER.decode(ids[len(opening) : prompt]) == text
        assert len(ids) <= 5_000 + 600
    # After a fold nothing is trained on before the next turn, and a window that was folded ends with a turn.
    for _, stages, _ in list(windows(spoken))[:-1]:
        assert stages[-1] != NO_STAGE
    assert spoken.tokens.prompt_length == len(opening)


def test_the_stages_of_all_windows_are_those_of_one_text(spoken):
    whole = asyncio.run(
        play(Spoken([turn(number, 24) for number in range(25)]), ContextLimits(), max_turn_tokens=5_000)
    )
    assert whole.tokens.window_starts == (0,)
    stages = [[stage for stage in rollout.tokens.stage_ids if stage != NO_STAGE] for rollout in (spoken, whole)]
    assert stages[0] == stages[1]
    texts = [rollout.trajectory.policy_text for rollout in (spoken, whole)]
    assert texts[0] == texts[1]


class Letters(Recital):
    """Draws each letter as a token of its own, as no tokenizer splits a text."""

    async def draw(self, ids, turn, *, max_tokens):
        text = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        letters = (token_id for letter in text for token_id in TOKENIZER.encode_foreign(letter))
        for token_id in letters:
            if turn.take(token_id, -1.0) is not None:
                break
        return Usage(calls=1)


class Failing(Recital):
    """Has no further turn once its episode was folded."""

    async def draw(self, ids, turn, *, max_tokens):
        if any(piece.begins_window for piece in self.pieces):
            raise ModelError("the server is gone")
        return await super().draw(ids, turn, max_tokens=max_tokens)


def test_a_turn_that_stays_whole_keeps_the_tokens_that_were_drawn():
    turns = [turn(number, 12) for number in range(13)]
    rollout = asyncio.run(play(Spoken(turns, Letters), LONG, max_turn_tokens=5_000))
    fold = rollout.trajectory.folds[-1]
    ids, stages, _ = list(windows(rollout))[-1]
    prompt = ids[: next(at for at, stage in enumerate(stages) if stage != NO_STAGE)]
    spelt = tuple(token_id for letter in turns[fold.turn - 1] for token_id in TOKENIZER.encode_foreign(letter))
    assert any(prompt[at : at + len(spelt)] == spelt for at in range(len(prompt)))


async def test_a_window_without_a_turn_is_left_out():
    policy = Spoken([turn(number, 24) for number in range(25)], Failing)
    rollout = await play(policy, LONG, max_turn_tokens=5_000)
    assert rollout.failure == "the server is gone"
    assert len(rollout.trajectory.folds) == 1
    assert rollout.tokens.window_starts == (0,)
    assert rollout.tokens.stage_ids[-1] != NO_STAGE


# -- a model

RAMBLING = EpisodeLimits(max_idle_turns=100, max_calls=2, max_turns=9, max_tokens=100_000)


@pytest.mark.parametrize(("temperature", "draft_tokens"), [(1.0, 0), (0.7, 3)])
async def test_log_probabilities_of_each_window_are_those_of_transformers(temperature, draft_tokens):
    """A random model never calls, so it reads notices; two episodes share a pass, and the rows of a third."""
    tokenizer = policy_tokenizer(tiny_tokenizer())
    model = tiny_qwen3(vocab_size=tokenizer.size)
    policy = LocalPolicy(model, tokenizer, rows=2, max_length=600, draft_tokens=draft_tokens)
    context = RolloutContext(
        policy,
        Pages(),
        RAMBLING,
        Sampling(temperature=temperature, max_turn_tokens=12),
        ContextLimits(fold_at=500, fold_to=350, keep=1),
    )
    attempts = [Attempt(QUERY, Opening("rules", QUERY.question), seed=seed) for seed in range(3)]
    rollouts = await asyncio.gather(*(run_episode(attempt, context) for attempt in attempts))
    await policy.aclose()
    for rollout in rollouts:
        assert len(rollout.tokens.windows) > 2
        for ids, stages, logprobs in windows(rollout):
            assert len(ids) <= 600
            with torch.inference_mode():
                logits = model(torch.tensor([list(ids)])).logits[0].float()
            expected = torch.log_softmax(logits / temperature, dim=-1)
            drawn = [at for at, stage in enumerate(stages) if stage != NO_STAGE]
            recomputed = [expected[at - 1, ids[at]].item() for at in drawn]
            np.testing.assert_allclose([logprobs[at] for at in drawn], recomputed, atol=1e-4)


async def test_nothing_folded_gives_the_same_tokens_to_the_byte():
    tokenizer = policy_tokenizer(tiny_tokenizer())
    model = tiny_qwen3(vocab_size=tokenizer.size)
    dumped = []
    for context in (ContextLimits(), ContextLimits(fold_at=100_000)):
        policy = LocalPolicy(model, tokenizer, rows=2, max_length=8_000, draft_tokens=3)
        played = RolloutContext(policy, Pages(), RAMBLING, Sampling(max_turn_tokens=12), context)
        rollout = await run_episode(Attempt(QUERY, OPENING, seed=3), played)
        await policy.aclose()
        dumped.append(rollout.model_dump_json())
    assert dumped[0] == dumped[1]
