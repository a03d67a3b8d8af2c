"""Teacher data in other stages: a live teacher's letters and analyses become samples; what cannot be is refused."""

import json

import pytest

from rubricem_agent.config.teacher import TeacherConfig
from rubricem_agent.data.teacher import TeacherPrompts
from rubricem_agent.wiring.teacher_data import teach
from rubricem_env.domain.errors import ConfigError
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelServer
from tests.letters import BRIEF, LETTER
from tests.scaffolds import DATA_ANALYSIS, WRITING

FRAME = (
    "<think>t</think><frame><tables>orders</tables><filters>none</filters><unit>euro</unit></frame>"
    '<call_tool name="run_sql">SELECT SUM(price) AS total\nFROM orders</call_tool>'
)
REPORT = (
    '<think>t</think><reading>42 in S_1</reading><report>The orders come to <cite id="S_1">42 euro</cite>.</report>'
)


@pytest.fixture
def taught(tmp_path):
    """Have a teacher write, and return what came of it with the requests."""

    def run(reply, questions, **settings):
        (tmp_path / "questions.jsonl").write_text("".join(json.dumps({"question": q}) + "\n" for q in questions))
        server = ModelServer(reply)
        with serve_loopback(server) as url:
            config = TeacherConfig(
                out=tmp_path / "out",
                probe=False,
                questions=tmp_path / "questions.jsonl",
                teacher=f"openai:teacher@{url}",
                **settings,
            )
            return teach(config, {}), server.asked

    return run


def test_letters_become_samples_with_the_agents_rules(taught):
    harvested, asked = taught(lambda _: LETTER, [BRIEF.question], scaffold="writing")

    assert harvested.report.accepted == 1
    system, user, letter = (message.content for message in harvested.samples[0].messages)
    assert "You are a writer who works from a brief" in system
    assert "declines the invitation" in user
    assert "<answer>" not in user
    assert letter == LETTER
    assert asked[0].body["messages"][0]["content"] == system


def test_a_letter_without_its_draft_is_rejected_for_its_structure(taught):
    poor = LETTER.replace("<draft>I decline.</draft>", "")
    harvested, _ = taught(lambda _: poor, [BRIEF.question], scaffold="writing")

    (reason,) = harvested.report.reasons
    assert (reason.reason, reason.is_paper) == ("missing_structure", True)
    assert "without <draft>" in reason.example


def test_a_letter_that_ends_before_its_text_lacks_no_tool_call(taught):
    harvested, _ = taught(lambda _: "<think>t</think>Dear Sir", [BRIEF.question], scaffold="writing")

    assert "no_tool_call" not in {reason.reason for reason in harvested.report.reasons}
    assert "no_action" in {reason.reason for reason in harvested.report.reasons}


def test_an_analysis_is_taught_on_the_users_tables(taught, tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.csv").write_text("id,price\n1,40\n2,2\n")
    (tmp_path / "tools.toml").write_text('backend = "none"\ntables = "shop"\n')
    harvested, asked = taught(
        lambda ask: REPORT if "The work so far" in ask.prompt else FRAME,
        ["What do the orders come to?"],
        scaffold="data_analysis",
        tools=str(tmp_path / "tools.toml"),
    )

    assert harvested.report.accepted == 1, harvested.report
    sample = harvested.samples[0]
    assert "orders" in sample.messages[0].content
    assert "SELECT SUM(price) AS total\nFROM orders</call_tool>" in sample.messages[2].content
    assert "orders" in asked[0].body["messages"][0]["content"]
    assert [sample.messages[2].content[slice(*span)] for span in sample.spans] == [FRAME, REPORT]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scaffold": "writing"}, "the script writes deep_research alone"),
        (
            {"scaffold": "writing", "teacher": "openai:m@http://x", "flat": True},
            "flat leaves out the stages of deep_research",
        ),
        ({"scaffold": "writing", "teacher": "openai:m@http://x"}, "the shipped questions are for deep_research"),
        ({"scaffold": "writin"}, "did you mean 'writing'"),
    ],
)
def test_what_cannot_be_taught_is_refused_in_one_sentence(tmp_path, settings, said):
    with pytest.raises(ConfigError, match=said):
        teach(TeacherConfig(out=tmp_path, **settings), {})


def test_tools_for_stages_without_a_call_are_refused(taught):
    with pytest.raises(ConfigError, match="the stages of writing call no tool, and tools is offline; leave it out"):
        taught(lambda _: LETTER, [BRIEF.question], scaffold="writing", tools="offline")


def test_a_set_with_prompts_of_its_own_has_both():
    own = {"teacher_first": "<!-- section: system -->\nBegin.\n<!-- section: user -->\n{{question}}\n"}
    with pytest.raises(ConfigError, match=r"has teacher_first\.md and not the other prompt of a teacher"):
        TeacherPrompts.of_stages(WRITING.model_copy(update={"prompts": own}), rules="")
    both = own | {"teacher_later": own["teacher_first"]}
    prompts = TeacherPrompts.of_stages(DATA_ANALYSIS.model_copy(update={"prompts": both}), rules="")
    assert prompts.first.section("system") == "Begin."
