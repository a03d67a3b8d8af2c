"""No key of ours appears in anything that a run leaves behind, whatever servers do with what they are sent."""

import logging

from rubricem_agent.config.tools import read_tools_config
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.trajectory import ToolCall, dump_trajectory
from rubricem_env.testing.episodes import run_scripted_episode
from rubricem_env.testing.loopback import serve_loopback
from tests.replies import grounded_reply
from tests.search_server import SearchReply, SearchServer

CANARY = "canary/key+0815=="
ENCODED = ("canary/key+0815==", "canary%2Fkey%2B0815%3D%3D", "canary\\/key+0815==")


async def test_a_canary_key_appears_in_no_artefact(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    # The engine echoes the key: in its answer, in a source, and in an error.
    leaky = grounded_reply(f"Your key is {CANARY}.", ((CANARY, f"https://a.example/?key={CANARY}"),), ((CANARY, 0),))
    scholar = SearchReply({"message": f"the key {CANARY} is over its limit"}, status=403)
    gemini, papers = SearchServer(SearchReply(leaky)), SearchServer(scholar)
    with serve_loopback(gemini.app) as gemini_url, serve_loopback(papers.app) as papers_url:
        settings = {
            "backend": "web",
            "google_search": {"url": gemini_url},
            "snippet_search": {"url": papers_url},
            "cache": {"path": tmp_path / "cache.db"},
            "record": tmp_path / "calls.jsonl",
        }
        async with open_tools(read_tools_config(settings), {"GEMINI_API_KEY": CANARY, "S2_API_KEY": CANARY}) as tools:
            episode = await run_scripted_episode(tools.toolbox)
            # A policy that was told the key cannot send it on either.
            await tools.toolbox.call(ToolCall(name="google_search", query=f"what is {CANARY}"))
    assert gemini.requests[0]["headers"]["x-goog-api-key"] == CANARY
    assert CANARY not in str(gemini.requests[-1]["json"])
    artefacts = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    artefacts["trajectory"] = dump_trajectory(episode.trajectory).encode()
    artefacts["log"] = caplog.text.encode()
    artefacts["repr"] = repr((tools, settings)).encode()
    found = [name for name, text in artefacts.items() for form in ENCODED if form.encode() in text]
    assert found == []
    assert "[redacted]" in artefacts["trajectory"].decode()
