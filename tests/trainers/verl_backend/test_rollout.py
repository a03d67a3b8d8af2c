"""Episodes over an engine get their credit, and are submitted whatever fails."""

import numpy as np

from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.world.offline import offline_queries, shipped_toolbox
from tests.search_server import SearchReply, SearchServer
from tests.trainers.verl_backend.fakes import BrokenClient, FakeClient, FakeHandle
from tests.trainers.verl_backend.test_judge_service import make_service
from trainers.verl_backend.patience import Patience
from trainers.verl_backend.rollout import AWAY, EpisodeRunner, PatientSearch
from trainers.verl_backend.rows import OURS, ScheduledQuery
from trainers.verl_backend.settings import read_section

SEARCH_SPEC = shipped_toolbox().tools["google_search"].spec

SCHEDULED = ScheduledQuery(offline_queries()[0], 1, "new")
CALL = '<call_tool name="google_search">width of Tall Fox</call_tool>'
ANSWER = "<think>t</think><answer>60 m</answer>"


class FakeService:
    """Has one lesson, and gives every token of a rollout that did not fail an advantage of 1."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.submitted = []
        self._breaks = breaks

    async def references(self, scheduled, index):
        if self._breaks:
            raise ConnectionError("the service is gone")
        return "<reference_examples>Look twice.</reference_examples>"

    async def submit(self, scheduled, rollout, *, group, index):
        self.submitted.append(rollout)
        return None if rollout.failure else np.ones(len(rollout.tokens.ids))


def runner(model_folder, service, **settings):
    sections = {"almanac": {}, "system": "Search.", "limits": {"max_tokens": 1_400}, **settings}
    return EpisodeRunner(read_section(sections), model=model_folder, max_length=4_096, service=FakeHandle(service))


async def play(model_folder, client, service, **references):
    """The only row of the second attempt of a group."""
    episodes = runner(model_folder, service, references=references)
    (row,) = await episodes.run(SCHEDULED, group="g", index=1, step=7, client=client, temperature=1.0)
    return row


async def test_an_episode_is_played_with_its_lessons_and_tools_to_one_row(model_folder, tokenizer):
    client, service = FakeClient(tokenizer, [CALL, ANSWER], versions=[4, 5]), FakeService()
    row = await play(model_folder, client, service)
    assert "Look twice." in tokenizer.decode(row["prompt_ids"])
    written = [id_ for id_, own in zip(row["response_ids"], row["response_mask"], strict=True) if own]
    assert tokenizer.decode(written) == CALL + ANSWER
    assert 0 in row["response_mask"]  # what the tool said
    extra = row["extra_fields"]
    assert (row["num_turns"], extra["min_global_steps"], extra["max_global_steps"]) == (2, 4, 5)


async def test_half_of_a_group_sees_lessons_and_is_trained_on_without_them_where_that_is_asked(model_folder, tokenizer):
    shares = {"share": 0.5, "distill_context": True}
    client = FakeClient(tokenizer, [ANSWER])
    guided = await play(model_folder, client, FakeService(), **shares)
    assert "Look twice." in tokenizer.decode(client.prompts[0])
    alone = FakeClient(tokenizer, [ANSWER])
    plain = await play(model_folder, alone, FakeService(), share=0.0)
    assert guided["prompt_ids"] == plain["prompt_ids"] == alone.prompts[0]
    assert guided["response_ids"] == plain["response_ids"]
    assert guided["response_logprobs"] == plain["response_logprobs"]


async def test_prompt_and_response_are_the_very_ids_that_the_engine_saw(model_folder, tokenizer):
    client = FakeClient(tokenizer, [CALL, ANSWER])
    row = await play(model_folder, client, FakeService())
    whole = row["prompt_ids"] + row["response_ids"]
    assert client.prompts[0] == row["prompt_ids"]
    assert client.prompts[1] == whole[: len(client.prompts[1])]


async def test_each_token_that_the_policy_wrote_has_a_stage_and_no_other_has(model_folder, tokenizer):
    row = await play(model_folder, FakeClient(tokenizer, [CALL, ANSWER]), FakeService())
    stages = row["extra_fields"][OURS]["stages"]
    assert [stage >= 0 for stage in stages] == [bool(own) for own in row["response_mask"]]


async def test_a_dead_engine_hands_in_a_rollout_that_says_so(model_folder):
    service = FakeService()
    row = await play(model_folder, BrokenClient(), service)
    assert "the actor died" in service.submitted[0].failure
    assert row["extra_fields"]["min_global_steps"] == 7


async def test_a_failure_before_the_first_token_is_handed_in_as_well(model_folder, tokenizer):
    service = FakeService(breaks=True)
    row = await play(model_folder, FakeClient(tokenizer, [ANSWER]), service)
    assert "the service is gone" in service.submitted[0].failure
    assert row["response_mask"] == [0]


class Engine:
    """A search engine that answers as it is told to."""

    spec = SEARCH_SPEC

    def __init__(self, *statuses):
        self.statuses = list(statuses)

    async def call(self, call):
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return ToolResult(status=status, message="" if status is OK else "no answer in 30 s")


OK, ERROR, TIMEOUT = ToolStatus.OK, ToolStatus.ERROR, ToolStatus.TIMEOUT
QUERY = ToolCall(name="google_search", query="a")


class Outages:
    """The judge service's part in an outage of search."""

    def __init__(self, patience):
        self.wait_for_search, self._patience = patience.wait, patience

    async def search_is_back(self):
        self._patience.end()


def patient(engine, patience):
    return PatientSearch(engine, FakeHandle(Outages(patience)))


async def test_a_search_engine_that_is_away_pauses_its_calls_until_it_is_back():
    patience = Patience(60, 0.001)
    search = patient(Engine(*[ERROR] * (AWAY - 1), TIMEOUT, ERROR, OK), patience)
    # What fails now and then is the policy's to read.
    assert [(await search.call(QUERY)).status for _ in range(AWAY - 1)] == [ERROR] * (AWAY - 1)
    assert not patience.is_paused
    assert (await search.call(QUERY)).status is OK
    assert (patience.is_paused, search.failure) == (False, "")
    assert 0 < patience.seconds < 30


async def test_answers_in_between_are_no_outage():
    patience = Patience(60, 0.001)
    search = patient(Engine(*[ERROR, ERROR, OK] * 9), patience)
    assert [(await search.call(QUERY)).status for _ in range(27)] == [ERROR, ERROR, OK] * 9
    assert patience.seconds == 0


async def test_after_the_patience_every_episode_is_lost_until_the_engine_answers():
    engine = Engine(ERROR)
    search = patient(engine, Patience(0, 0.001))
    results = [await search.call(QUERY) for _ in range(AWAY)]
    assert results[-1].status is ERROR
    assert search.failure.startswith("google_search was away for longer than rubricem.outage.patience: no answer")
    engine.statuses = [OK]
    await search.call(QUERY)
    assert search.failure == ""


async def test_an_outage_of_search_pauses_the_run_as_one_of_the_judge_does(model_folder):
    service = make_service(model_folder, meta_policy=False, outage={"patience": 60, "probe": 0.01})
    assert await service.wait_for_search()
    assert (await service.pauses())[0] is True
    await service.search_is_back()
    paused, seconds = await service.pauses()
    assert (paused, 0 < seconds < 30) == (False, True)


async def test_an_episode_whose_search_stayed_away_is_lost_and_says_so(model_folder, tokenizer):
    service = FakeService()
    service.wait_for_search = Patience(0, 0.001).wait
    episodes = runner(model_folder, service, almanac=None, questions="q.jsonl", tools={"backend": "offline"})
    await episodes._tools()
    episodes._searches[0]._tool = Engine(ERROR)
    episodes._searches[0]._failures = AWAY
    client = FakeClient(tokenizer, [CALL, ANSWER])
    await episodes.run(SCHEDULED, group="g", index=0, step=7, client=client, temperature=1.0)
    assert "google_search was away for longer" in service.submitted[0].failure


async def test_workers_share_one_cache_of_searches_which_the_judge_service_keeps(model_folder, tmp_path):
    page = {"results": [{"url": "https://a.example", "title": "T", "content": "60 m"}], "answers": []}
    server = SearchServer(SearchReply(page))
    with serve_loopback(server.app) as url:
        search = {"engine": "searxng", "url": url}
        tools = {"backend": "web", "google_search": search, "cache": {"path": str(tmp_path / "runs" / "tools.sqlite")}}
        service = make_service(model_folder, meta_policy=False, tools=tools)
        found = []
        for _ in range(2):
            worker = runner(model_folder, service, tools=tools)
            toolbox = await worker._tools()
            found += [await toolbox.call(QUERY), await toolbox.call(ToolCall(name=QUERY.name, query="another"))]
            await worker._stack.aclose()
        later = make_service(model_folder, meta_policy=False, tools=tools)
        resumed = runner(model_folder, later, tools=tools)
        found.append(await (await resumed._tools()).call(QUERY))
        await resumed._stack.aclose()
        for one in (service, later):
            await one._cache.aclose()
    assert [result.snippets[0].text for result in found] == ["60 m"] * 5
    assert len(server.requests) == 2
