"""The tools that answer questions: questions about the real world are answered from the almanac on request alone."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rubricem_agent.config.tools import THE_ALMANAC, ToolsConfig, parse_tools, shown_tools
from rubricem_agent.evals.benchmark import REAL_WORLD, Benchmark
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.tools.spec import RUN_SQL
from rubricem_records.evaluations.rules import SearchKind

OFFLINE = "offline"
"""What a command says that wants the almanac."""
NO_TOOLS = "none"
"""What a command says that wants no tools."""
_ALL_THE_SAME = "--tools offline searches the almanac all the same"


_OPTION_OF: Mapping[SearchKind, str] = MappingProxyType(
    {
        "web": "--tools web",
        "index": "the folder of an index",
        "tool server": "the URL of a tool server",
        "record": "a TOML file with replay = FILE",
        "closed book": "--tools none for closed book",
    }
)
"""How a command names tools that search this."""


def refuse_absent_tools(scaffold: Scaffold, offered: Sequence[str]) -> None:
    """Raise ConfigError where no tool is offered that a task calls. Deep research takes any tool."""
    if scaffold != DEFAULT and scaffold.tools and not {*scaffold.tools} & {*offered}:
        needed = " or ".join(scaffold.tools)
        way_out = "name tools that have it with --tools"
        if RUN_SQL in scaffold.tools:
            way_out = 'name tables: --tables FOLDER with ask, else tables = "FOLDER" in a TOML file given with --tools'
        raise ConfigError(f"the stages {scaffold.name} call {needed}, which no tool here is called; {way_out}.")


def tools_of_questions(tools: str, *, questions: str, allowed: Sequence[SearchKind] = REAL_WORLD) -> ToolsConfig:
    """The tools that a command names for questions that are not the almanac's; `questions` names them in messages.

    Raises:
        UsageError: none are named, settings search the almanac without saying so, or what they search is not allowed.
    """
    *options, last = (_OPTION_OF[kind] for kind in allowed)
    way_out = f"Give {', '.join(options)} or {last}"
    if not tools:
        raise UsageError(
            f"{questions} are about the real world, and no tools are named: only {THE_ALMANAC}, would be searched. "
            f"{way_out}; {_ALL_THE_SAME}."
        )
    config = parse_tools(tools)
    if tools != OFFLINE and config.searches == "almanac":
        alone = ', or backend = "none" for the mounted servers alone' if config.mounted else ""
        raise UsageError(
            f"{questions} are about the real world, and {tools} names neither a backend nor a corpus: it searches "
            f'{THE_ALMANAC}. Set backend = "web" or corpus = FILE there{alone}; {_ALL_THE_SAME}.'
        )
    if tools != OFFLINE and config.searches not in allowed:
        raise UsageError(
            f"--tools {shown_tools(tools)} is {config.searched}, which is not what {questions} are answered from. "
            f"{way_out}; {_ALL_THE_SAME}."
        )
    return config


def tools_of_benchmark(tools: str, benchmark: Benchmark) -> ToolsConfig:
    """The tools that a command names for a benchmark; the almanac's own questions need none named.

    Raises:
        UsageError: as `tools_of_questions`, by the benchmark's protocol.
    """
    if benchmark.is_almanac:
        return parse_tools(tools or OFFLINE)
    questions = f"the questions of {benchmark.title}"
    return tools_of_questions(tools, questions=questions, allowed=benchmark.searches)
