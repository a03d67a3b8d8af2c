"""The file of an ablation: it is read back, served as it is, and refused in one sentence where it is damaged."""

import pytest

from rubricem_env.domain.errors import FileFormatError
from rubricem_viewer.ablation import Ablation, CurvePoint, RecipeResult, Spread, load_ablation


def spread(mean: float) -> Spread:
    return Spread(mean=mean, low=mean, high=mean)


def result(name: str, answer: float) -> RecipeResult:
    return RecipeResult(
        name=name,
        title=name,
        seeds=(0, 1),
        answer=spread(answer),
        all_stages=spread(0.9),
        valid=spread(1.0),
        against_baseline=spread(answer - 0.5),
        steps_to_baseline=None,
        seconds=1.0,
        curve=(CurvePoint(step=8, answer=spread(answer)),),
    )


FOUND = Ablation(
    steps=8, command="python -m research.ablate", results=(result("answer_only", 0.5), result("whole", 0.75))
)


def test_the_file_is_read_back_and_served(tmp_path, serve):
    (tmp_path / "ablation.json").write_text(FOUND.model_dump_json(), encoding="utf-8")

    get = serve(tmp_path)
    card = get("")["card"]

    assert load_ablation(tmp_path) == FOUND
    assert get("/ablation") == FOUND.model_dump(mode="json")
    # The best recipe's answers.
    assert (card["kind"], card["state"], card["scores"]["answer"]) == ("ablation", "finished", 0.75)
    assert "no curves" in get("/curves", expect=404)["message"]


@pytest.mark.parametrize("text", ["{", "{}", "\xff"])
def test_a_damaged_file_is_one_sentence(tmp_path, text):
    (tmp_path / "ablation.json").write_text(text, encoding="latin-1")

    with pytest.raises(FileFormatError, match=r"ablation\.json"):
        load_ablation(tmp_path)
