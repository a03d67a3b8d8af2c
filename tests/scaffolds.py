"""Scaffolds that differ from deep research in every respect, for tests that hold in all of them."""

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.stage_set import DEEP_RESEARCH, read_stage_set

WRITING = read_stage_set("writing")
THREE = Scaffold.model_validate(
    {
        "name": "three",
        "stages": [
            {"name": "frame", "ends_with": "framing"},
            {"name": "analyse", "holds": ["call_tool", "check"]},
            {"name": "report", "begins_with": "report"},
        ],
        "sections": {"framing": ["question", "measures"]},
        "aliases": {"check": "checks"},
        "tools": ["run_sql"],
        "answers_at_once": True,
        "lenient": ["missing_block"],
    }
)
"""Three stages with one tool, as an analysis of data has them."""
ONE = Scaffold.model_validate({"name": "one", "stages": [{"name": "reply", "begins_with": "reply"}], "cites": False})
EIGHT = Scaffold.model_validate(
    {
        "name": "eight",
        "stages": [
            *({"name": f"closed_{number}", "ends_with": f"closed_{letter}"} for number, letter in enumerate("ab", 1)),
            {"name": "work", "holds": ["call_tool"]},
            *(
                {"name": f"opened_{number}", "begins_with": f"opened_{letter}", "from_thought": letter != "a"}
                for number, letter in enumerate("abcd", 1)
            ),
            {"name": "end", "begins_with": "end"},
        ],
        "tools": ["look_up"],
    }
)
SCAFFOLDS = (DEEP_RESEARCH.scaffold, WRITING.scaffold, THREE, ONE, EIGHT)
