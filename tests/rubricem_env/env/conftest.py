"""Parts that the environment tests share."""

import pytest

from rubricem_env.domain.trajectory import Query
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.corpus_search import Corpus, Document, offline_toolbox

PLAN = (
    "<think>t</think><structured_plan><deep_analysis>a</deep_analysis><rubric>r</rubric>"
    "<research_plan>p</research_plan></structured_plan>"
)
CALL = '<call_tool name="google_search">Tall Fox width</call_tool>'
REVIEW = "<review><rubric_review>r</rubric_review><writing_plan>w</writing_plan></review>"
ANSWER = "<answer>60 m</answer>"


@pytest.fixture
def toolbox() -> LocalToolbox:
    page = Document(id="d1", title="Tall Fox", url="https://almanac.example/d1", text="The width of Tall Fox is 60 m.")
    return offline_toolbox(Corpus([page]))


@pytest.fixture
def queries() -> tuple[Query, ...]:
    return tuple(Query(question=f"Question {number}?") for number in range(5))
