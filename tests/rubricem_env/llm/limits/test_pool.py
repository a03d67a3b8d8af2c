"""One model behind several servers: the least loaded is asked, one that is away is left out and tried again."""

import asyncio

import pytest

from rubricem_agent.model_names import parse_judge, parse_policy, parse_teacher
from rubricem_agent.wiring.models import JUDGE_KEY, connect_chat_model, naming
from rubricem_env.domain.errors import ConfigError, ModelError
from rubricem_env.llm.chat import ChatReply, ChatRequest
from rubricem_env.llm.limits.pool import ModelPool
from rubricem_env.testing.loopback import free_port, serve_loopback
from rubricem_env.testing.servers import ModelServer

ASKED = ChatRequest("hello")


class Server:
    """Answers when it is told to; `is_away` fails at once, as a refused connection does."""

    name = "model"

    def __init__(self):
        self.asked, self.is_away, self.may_answer = 0, False, asyncio.Event()

    async def complete(self, request):
        self.asked += 1
        if self.is_away:
            raise ModelError("away", is_retryable=True)
        await self.may_answer.wait()
        return ChatReply(text="yes", model=self.name)

    async def aclose(self):
        self.may_answer.clear()


def test_a_pool_of_one_server_has_its_name():
    assert ModelPool([Server()]).name == Server.name


def counts(servers):
    return [server.asked for server in servers]


async def test_a_request_goes_to_the_server_with_the_fewest():
    servers = [Server(), Server(), Server()]
    pool = ModelPool(servers)
    calls = [asyncio.ensure_future(pool.complete(ASKED)) for _ in range(7)]
    await asyncio.sleep(0)
    assert counts(servers) == [3, 2, 2]
    servers[1].may_answer.set()
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    calls += [asyncio.ensure_future(pool.complete(ASKED)) for _ in range(2)]
    await asyncio.sleep(0)
    assert counts(servers) == [3, 4, 2]
    for server in servers:
        server.may_answer.set()
    assert {reply.text for reply in await asyncio.gather(*calls)} == {"yes"}


async def test_requests_in_a_row_go_to_the_servers_in_turn():
    servers = [Server(), Server(), Server()]
    for server in servers:
        server.may_answer.set()
    pool = ModelPool(servers)
    for _ in range(7):
        await pool.complete(ASKED)
    assert counts(servers) == [3, 2, 2]


async def test_a_server_that_is_away_is_left_out_then_tried_by_one_request_and_taken_back():
    now, servers = [0.0], [Server(), Server()]
    pool = ModelPool(servers, rest=30, clock=lambda: now[0])
    servers[1].may_answer.set()
    servers[0].is_away = True
    for _ in range(5):
        assert (await pool.complete(ASKED)).text == "yes"
    assert counts(servers) == [1, 5]
    now[0], servers[0].is_away = 31.0, False
    calls = [asyncio.ensure_future(pool.complete(ASKED)) for _ in range(4)]
    await asyncio.sleep(0)
    assert counts(servers) == [2, 8]
    servers[0].may_answer.set()
    await asyncio.gather(*calls)
    servers[0].may_answer.clear()
    servers[1].may_answer.clear()
    calls = [asyncio.ensure_future(pool.complete(ASKED)) for _ in range(4)]
    await asyncio.sleep(0)
    assert counts(servers) == [4, 10]
    for server in servers:
        server.may_answer.set()
    await asyncio.gather(*calls)


async def test_where_none_answers_the_last_failure_is_raised_and_a_refusal_is_not_passed_on():
    servers = [Server(), Server()]
    for server in servers:
        server.is_away = True
    with pytest.raises(ModelError, match="away"):
        await ModelPool(servers).complete(ASKED)
    assert counts(servers) == [1, 1]

    class Refuses(Server):
        async def complete(self, request):
            raise ModelError("too long")

    untouched = Server()
    with pytest.raises(ModelError, match="too long"):
        await ModelPool([Refuses(), untouched]).complete(ASKED)
    assert untouched.asked == 0


async def test_a_judge_with_two_addresses_survives_the_death_of_one():
    with serve_loopback(ModelServer(lambda _: "fine")) as url:
        spec = parse_judge(f"openai:judge@http://127.0.0.1:{free_port()}/v1,{url}/v1")
        model, _ = connect_chat_model(spec, {}, own_key=JUDGE_KEY, role="judge", timeout=5.0)
        replies = [await model.complete(ASKED) for _ in range(3)]
        await model.aclose()
    assert [reply.text for reply in replies] == ["fine"] * 3


def test_each_address_is_checked_and_named():
    assert len(parse_teacher("openai:m@http://a/v1,http://b/v1").urls) == 2
    with pytest.raises(ConfigError, match="must start with http"):
        parse_judge("openai:m@http://a/v1,b")
    with pytest.raises(ConfigError, match="several URLs, as only judges and teachers of openai: may have"):
        parse_policy("openai:m@http://a/v1,http://b/v1")
    with pytest.raises(ConfigError, match="several URLs"):
        parse_judge("gemini:m@http://a/v1,http://b/v1")
    environ = naming({JUDGE_KEY: "secret"}, JUDGE_KEY, "openai:m@https://a.example/v1,https://b.example/v1")
    assert environ[f"{JUDGE_KEY}_HOST"] == "a.example b.example"
