"""The environment in a loop of one's own: it pays the stages, compares the attempts, and loads no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "own_loop.py"


@pytest.fixture(scope="module")
def printed():
    code = f"import runpy, sys; runpy.run_path({str(PROGRAM)!r}, run_name='__main__'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_plan_is_paid_when_it_is_written_and_the_other_stages_at_the_end(printed):
    # Careful and hasty plan alike. At the end the hasty attempt lacks the whole score of a review.
    assert printed[:4] == [
        "careful: reward 1.00 for turn 1",
        "careful: reward 2.50 for turn 2",
        "hasty: reward 1.00 for turn 1",
        "hasty: reward 1.50 for turn 2",
    ]


def test_a_plan_earns_from_the_review_that_follows_it(printed):
    assert printed[6].split() == ["advantages", "plan", "research", "review", "answer"]
    rows = {name: [float(text) for text in row] for name, *row in (line.split() for line in printed[7:10])}
    assert list(rows) == ["careful", "hasty", "guessing"]
    # The same plan, the same answer: what differs is the review, and every stage before it has a share in it.
    assert rows["careful"][3] == rows["hasty"][3]
    assert all(careful > hasty for careful, hasty in zip(rows["careful"][:3], rows["hasty"][:3], strict=True))
    assert all(hasty > guessing for hasty, guessing in zip(rows["hasty"], rows["guessing"], strict=True))


def test_no_torch_is_loaded(printed):
    assert printed[-1] == "False"
