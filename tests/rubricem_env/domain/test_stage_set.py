"""A stage set is read from a folder, travels with a trajectory, and is refused in one sentence if it is malformed."""

import json
import shutil

import pytest

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.stage_set import DEEP_RESEARCH, is_shipped, read_stage_set, stage_set_folder
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory, dump_trajectory, load_trajectory
from tests.scaffolds import EIGHT, ONE, SCAFFOLDS, THREE, WRITING

STAGE = '[[stages]]\nname = "{}"\n{}\nquestion = "is it good?"\n'
SMALL = 'name = "small"\nmatrix = [[1, 0.5], [0, 1]]\n' + STAGE.format("plan", 'ends_with = "plan"')
SMALL += STAGE.format("text", 'begins_with = "text"')


def written(folder, toml, agent="Write."):
    (folder / "stages.toml").write_text(toml, encoding="utf-8")
    if agent:
        (folder / "agent.md").write_text(agent, encoding="utf-8")
    return str(folder)


def test_the_default_has_the_papers_stages_caps_and_matrix():
    assert DEEP_RESEARCH.scaffold.names == STAGES
    assert list(DEEP_RESEARCH.caps.values()) == [3, 2, 2, 3]
    assert [sum(row) for row in DEEP_RESEARCH.matrix] == pytest.approx([2.8, 2.2, 1.8, 1.0])


def test_a_set_of_ones_own_is_read_from_two_files(tmp_path):
    own = read_stage_set(written(tmp_path, SMALL))
    assert (own.name, own.scaffold.names, own.scaffold.working) == ("small", ("plan", "text"), "text")
    assert own.matrix == ((1.0, 0.5), (0.0, 1.0))
    assert own.prompts == {"agent": "Write."}
    assert [guide.extent for guide in own.guides] == ["from the start through `</plan>`", "`<text>` to the end"]
    assert hash(own) == hash(read_stage_set(str(tmp_path)))


def test_what_a_stage_goes_through_is_said_of_every_kind_of_stage(tmp_path):
    stages = STAGE.format("a", 'ends_with = "first"') + STAGE.format("b", 'ends_with = "second"')
    stages += STAGE.format("c", 'holds = ["notes"]') + STAGE.format("d", 'begins_with = "check"\nfrom_thought = true')
    stages += STAGE.format("e", 'begins_with = "fix"') + STAGE.format("f", 'begins_with = "text"')
    rows = [[0.0] * at + [1.0] * (6 - at) for at in range(6)]
    toml = f'name = "six"\nmatrix = {rows}\n{stages}\n[sections]\nfirst = ["one", "two"]\n'
    own = read_stage_set(written(tmp_path, toml))
    assert [guide.extent for guide in own.guides] == [
        "from the start through `</first>`",
        "from there through `</second>`",
        "what lies between",
        "the last thought before `<check>`, through `</check>`",
        "`<fix>`, through `</fix>`",
        "`<text>` to the end",
    ]
    assert own.guides[0].contents == "`<first>` with `<one>`, `<two>`"


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ('name = "small"', "describes no stages"),
        (SMALL.replace("[[1, 0.5], [0, 1]]", "[]"), "the matrix is an empty list for 2 stages"),
        (SMALL.replace("[[1, 0.5], [0, 1]]", "[[1, 0.5]]"), "the matrix is 1 x 2 for 2 stages"),
        (SMALL.replace("[0, 1]]", "[0, 0.5]]"), "the matrix has 0.5 in row 2, column 2; it must be 1 there"),
        (SMALL.replace("[0, 1]]", "[0.2, 1]]"), "the matrix has 0.2 in row 2, column 1; it must be 0 there"),
        (SMALL.replace("0.5", "1.5"), "the matrix has 1.5 in row 1, column 2; it must be from 0 to 1 there"),
        (SMALL.replace('"text"\nq', '"plan"\nq'), "the tag <plan> has two meanings"),
        (SMALL.replace('ends_with = "plan"', 'ends_with = "think"'), "the tag <think> has two meanings"),
        (SMALL.replace('ends_with = "plan"', 'ends_with = "Plan"'), "pattern"),
        (SMALL.replace('name = "text"', 'name = "plan"'), "two stages are called 'plan'"),
        (SMALL.replace('ends_with = "plan"', ""), "the stage 'plan' holds no block"),
        (SMALL.replace('begins_with = "text"', 'holds = ["text"]'), "the last stage is 'text', which no answer opens"),
        (SMALL.replace('ends_with = "plan"', 'ends_with = "plan"\nbegins_with = "go"'), "has one boundary"),
        (SMALL.replace('ends_with = "plan"', 'ends_with = "plan"\nholds = ["go"]'), "has a boundary and holds blocks"),
        (SMALL.replace('ends_with = "plan"', 'ends_with = "plan"\nfrom_thought = true'), "needs begins_with"),
        (SMALL.replace('ends_with = "plan"', 'holds = ["call_tool"]'), "tools and call_tool go together"),
        (f"tools = ['a']\n{SMALL}", "tools and call_tool go together"),
        (f"{SMALL}\n[sections]\nother = ['a']", "<other> has sections and is no block of a stage"),
        (f"{SMALL}\n[aliases]\nother = 'a'", "<other> has an alias and is no tag of the scaffold"),
        (f"own_criteria = 'aims'\n{SMALL}", "own_criteria is 'aims', which is no section of a block"),
        (f"lenient = ['rude']\n{SMALL}", "input should be"),
        (f"colour = 'red'\n{SMALL}", "colour"),
        (SMALL.replace('question = "is it good?"', "", 1), "question"),
        ("name = ", "cannot read the stage set"),
    ],
)
def test_a_malformed_set_is_refused_in_one_sentence(tmp_path, toml, sentence):
    with pytest.raises(ConfigError) as refused:
        read_stage_set(written(tmp_path, toml))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value).strip() or "cannot read" in sentence


def stages(*lines: str) -> str:
    size = len(lines) + 1
    rows = [[0.0] * at + [1.0] * (size - at) for at in range(size)]
    body = "".join(STAGE.format(f"s{at}", line) for at, line in enumerate(lines)) + STAGE.format(
        "z", 'begins_with = "z"'
    )
    return f'name = "own"\nmatrix = {rows}\n{body}'


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        (stages('holds = ["a"]', 'holds = ["b"]'), "nothing closes the stage 's1'"),
        (stages('begins_with = "a"', 'holds = ["b"]'), "nothing closes the stage 's1'"),
        (stages('holds = ["a"]', 'ends_with = "b"'), "the stage 's1' ends with its block after a stage"),
        (stages(*(f'ends_with = "{letter}"' for letter in "abcdefgh")), "at most 8 items"),
    ],
)
def test_a_stage_that_nothing_closes_or_that_comes_too_late_is_refused(tmp_path, toml, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_stage_set(written(tmp_path, toml))


def test_a_set_without_a_prompt_or_with_an_empty_one_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no agent\.md"):
        read_stage_set(written(tmp_path, SMALL, agent=""))
    with pytest.raises(ConfigError, match=r"agent\.md is empty"):
        read_stage_set(written(tmp_path, SMALL, agent=" \n"))
    (tmp_path / "stages.toml").unlink()
    with pytest.raises(ConfigError, match=r"has no stages\.toml"):
        read_stage_set(str(tmp_path))


def test_an_unknown_set_names_the_nearest_one_or_all(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'writing'"):
        read_stage_set("writting")
    with pytest.raises(ConfigError, match=r"write .*deep_research or writing, or the folder"):
        read_stage_set(str(tmp_path / "nothing"))


def test_a_copy_of_a_shipped_folder_is_the_same_set(tmp_path):
    for name in ("deep_research", "writing"):
        shutil.copytree(stage_set_folder(name), tmp_path / name)
        assert read_stage_set(str(tmp_path / name)) == read_stage_set(name)


@pytest.mark.parametrize("scaffold", SCAFFOLDS, ids=lambda scaffold: scaffold.name)
def test_a_trajectory_carries_its_scaffold_and_leaves_the_default_out(scaffold):
    whole = Trajectory(question="q", scaffold=scaffold, segments=(Segment(origin=Origin.POLICY, text="a"),))
    text = dump_trajectory(whole)
    assert ("scaffold" in json.loads(text)) == (scaffold is not DEEP_RESEARCH.scaffold)
    again = load_trajectory(text)
    assert again == whole
    # Equal scaffolds are one object, so that comparing them costs nothing.
    assert again.scaffold is load_trajectory(text).scaffold


def test_a_file_with_a_malformed_scaffold_is_refused():
    row = {"version": 1, "question": "q", "segments": [], "scaffold": {"name": "x", "stages": [{"name": "a"}]}}
    with pytest.raises(FileFormatError, match="which no answer opens"):
        load_trajectory(json.dumps(row))


def test_a_scaffold_knows_its_stages_by_place():
    assert (THREE.position("report"), THREE.last, THREE.working) == (2, "report", "analyse")
    assert (THREE.calls_tools, ONE.calls_tools, ONE.working) == (True, False, "reply")
    assert (THREE.blocks, ONE.blocks) == (("check", "framing"), ())
    assert THREE.form("frame").makers == ("framing",)
    assert len(EIGHT.names) == 8
    assert WRITING.caps == {"outline": 3, "draft": 2, "revise": 2, "final": 3}
    assert Scaffold.model_validate_json(EIGHT.model_dump_json()) == EIGHT


def test_a_set_of_the_package_is_told_from_a_folder(tmp_path):
    assert is_shipped("writing")
    assert not is_shipped(written(tmp_path, SMALL))
