"""The judge's system prompts have the scale and the counts of rubrics from their constants."""

from importlib import resources
from pathlib import Path

import pytest

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.scale import FULL_SCORE, list_scores
from rubricem_env.judge.base import ScoringRequest
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.model.proposed_rubrics import WEIGHTS
from rubricem_env.judge.model.templates import PROPOSE, SCORE, SHIPPED_PROMPTS, read_judge_prompts
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import QUESTION, attempt
from tests.fakes import ScriptedModel, rubric


@pytest.mark.parametrize("purpose", SHIPPED_PROMPTS.systems)
def test_no_variable_of_a_template_is_left_unfilled(purpose):
    assert "$" not in SHIPPED_PROMPTS.systems[purpose]


def test_the_scoring_prompt_states_the_scale():
    assert list_scores() == "0, 1 or 2"
    assert (
        f"- {FULL_SCORE}: the quality is fully there\n- 1: partly there\n- 0: absent" in SHIPPED_PROMPTS.systems[SCORE]
    )
    assert SHIPPED_PROMPTS.systems[SCORE].rstrip().endswith(f"the score as a whole number {list_scores()}.")


def test_the_proposing_prompt_states_the_counts_and_the_weights():
    assert "Aim at 1 to 4 criteria" in SHIPPED_PROMPTS.systems[PROPOSE]
    assert "and 2 to 5 for the answer" in SHIPPED_PROMPTS.systems[PROPOSE]
    assert SHIPPED_PROMPTS.systems[PROPOSE].count("(1 minor, 2 important, 3 critical)") == 1
    assert list(WEIGHTS) == [1, 2, 3]


def test_a_repair_names_the_missing_indices():
    assert "Missing or unusable: 2, 5." in SHIPPED_PROMPTS.repair_request([2, 5])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped prompts."""
    for file in resources.files("rubricem_env.judge.model").joinpath("prompts").iterdir():
        (tmp_path / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


async def test_a_judge_asks_with_the_prompts_of_a_folder_and_its_scores_carry_their_hash(folder):
    (folder / "score.md").write_text("Be kind. $full_score, $partial_scores, $all_scores.", encoding="utf-8")
    prompts = read_judge_prompts(folder)
    criterion = rubric("a")
    model = ScriptedModel(['{"scores": [{"index": 1, "justification": "there", "score": 2}]}'])
    request = ScoringRequest(QUESTION, parse_trajectory(attempt()), (criterion,))
    result = await LLMJudge(model, prompts=prompts).score(request)

    assert model.requests[0].system == "Be kind. 2, 1, 0, 1 or 2."
    assert result.prompt_hash == prompts.hashes["score"] != SHIPPED_PROMPTS.hashes["score"]
    assert {name for name, one in prompts.hashes.items() if one != SHIPPED_PROMPTS.hashes[name]} == {"score"}


def test_a_copy_of_ours_is_ours(folder):
    assert read_judge_prompts(folder).hashes == read_judge_prompts(None).hashes


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("score", None, r"the folder of prompts .* has no score\.md; it needs one of each of ours\. Copy .* from /"),
        ("score", " \n", r"the prompt .*score\.md is empty"),
        ("score", "2, 1, 0: $full_score", r"score\.md lacks the placeholder \$all_scores, \$partial_scores"),
        ("repair", "Again, please.", r"repair\.md lacks the placeholder \$all_scores, \$missing"),
        ("reflect", "For $price.", r"reflect\.md has the unknown placeholder \$price; those of ours are: none"),
        ("admit", "It costs $5.", r"admit\.md has a \$ that begins no placeholder; write \$\$"),
    ],
)
def test_a_folder_that_misses_a_prompt_or_a_placeholder_is_refused_in_one_sentence(folder, name, text, sentence):
    file = folder / f"{name}.md"
    file.unlink()
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=sentence):
        read_judge_prompts(folder)


def test_a_prompt_that_is_no_text_and_a_folder_that_is_not_there_are_refused(folder):
    (folder / "score.md").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"cannot read the prompt .*score\.md"):
        read_judge_prompts(folder)
    with pytest.raises(ConfigError, match=r"there is no folder of prompts .*absent\. Begin from a copy of /"):
        read_judge_prompts(folder / "absent")
