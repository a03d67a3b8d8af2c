"""Scaffolds that differ from deep research in every respect, for tests that hold in all of them."""

from rubricem_env.domain.scaffold import CALL_TOOL, Scaffold
from rubricem_env.domain.stage_set import DEEP_RESEARCH, read_stage_set
from rubricem_env.domain.trajectory import Query, Snippet, ToolCall, ToolResult, Trajectory
from rubricem_env.env.episode import Episode

WRITING = read_stage_set("writing")
DATA_ANALYSIS = read_stage_set("data_analysis")
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
SCAFFOLDS = (DEEP_RESEARCH.scaffold, WRITING.scaffold, DATA_ANALYSIS.scaffold, THREE, ONE, EIGHT)

THOUGHT = "<think>t</think>"


def attempt_of(
    scaffold: Scaffold, question: str = "What?", *, answer: str = "the words", page: str = "a fact"
) -> Trajectory:
    """A whole attempt: each block once, and one call where the task has tools."""
    episode = Episode(Query(question=question), scaffold=scaffold)
    closed = [_written(stage.ends_with, scaffold) for stage in scaffold.stages if stage.ends_with]
    held = [_written(tag, scaffold) for stage in scaffold.stages for tag in stage.holds if tag != CALL_TOOL]
    opened = [_written(stage.begins_with, scaffold) for stage in scaffold.stages[:-1] if stage.begins_with]
    if scaffold.calls_tools:
        call = episode.emit(f'{THOUGHT}{"".join(closed)}<call_tool name="{scaffold.tools[0]}">a query</call_tool>')
        assert isinstance(call, ToolCall)
        episode.observe(ToolResult.found([Snippet(text=page)]))
        closed = []
    cited = f'<cite id="S_1">{answer}</cite>' if scaffold.cites and scaffold.calls_tools else answer
    last = f"<{scaffold.answer_tag}>{cited}</{scaffold.answer_tag}>"
    episode.emit(THOUGHT + "".join([*closed, *held, *(THOUGHT + block for block in opened), last]))
    return episode.trajectory


def _written(tag: str, scaffold: Scaffold) -> str:
    inner = "".join(f"<{name}>{name} said</{name}>" for name in scaffold.sections.get(tag, ())) or f"{tag} said"
    return f"<{tag}>{inner}</{tag}>"
