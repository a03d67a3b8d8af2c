"""The scaffold of a task: its stages, the tags that make them, where they begin and end, and what is refused.

A trajectory carries its scaffold, so that whoever reads it finds the stages that it was written in. It holds names
alone, and no text for a model: a file cannot bring a prompt.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import chain
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from rubricem_env.domain.base import MAX_STAGES, Frozen, StageName
from rubricem_env.domain.violation_codes import Code

TagName = Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,31}$")]
"""The name of a tag: lower-case letters and underscores."""
CodeName = Annotated[Code, Field(strict=False)]
"""A violation by its name."""
ToolName = Annotated[str, Field(pattern=r"^[\w.-]{1,64}$")]

THINK = "think"
CALL_TOOL = "call_tool"
CITE = "cite"
TOOL_OUTPUT = "tool_output"
SNIPPET = "snippet"
COMMON_TAGS = (THINK, CALL_TOOL, CITE, TOOL_OUTPUT, SNIPPET)
"""The tags that mean the same in every scaffold."""
KEPT_TAGS = ("reference_examples", "reflection_rubrics", "reflection_takeaways")
"""The tags of the rubric bank and of reflections."""


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


TagNames = Annotated[tuple[TagName, ...], BeforeValidator(_as_tuple)]


class StageForm(Frozen):
    """A stage as it stands in a text: its name, and where it begins and ends."""

    name: StageName
    ends_with: TagName | None = None
    """The block that closes the stage: its first one, if no action comes before it."""
    begins_with: TagName | None = None
    """The block that opens the stage: its last one before the answer that no tool call follows. The last stage's block
    is the answer itself.
    """
    from_thought: bool = False
    """The stage begins at the last thought before that block."""
    holds: TagNames = ()
    """The blocks of the stage that lies between, in which tools are called."""
    missing: CodeName = Code.MISSING_BLOCK
    """The violation where its block is missing."""
    missing_section: CodeName = Code.MISSING_SECTION
    """The violation where its block lacks a section."""

    @property
    def loops(self) -> bool:
        """Whether it is what lies between the stages with a boundary of their own."""
        return self.ends_with is None and self.begins_with is None

    @property
    def block(self) -> str | None:
        """The block that ends or begins it."""
        return self.ends_with or self.begins_with

    @property
    def makers(self) -> tuple[str, ...]:
        """The blocks that make the stage. Thoughts alone are no stage."""
        return self.holds if self.block is None else (self.block,)


class Scaffold(Frozen):
    """How a text is read into stages."""

    name: StageName
    stages: Annotated[tuple[StageForm, ...], BeforeValidator(_as_tuple), Field(min_length=1, max_length=MAX_STAGES)]
    sections: Mapping[TagName, TagNames] = {}
    """The sections of a complete block, in order."""
    aliases: Mapping[TagName, TagName] = {}
    """Another name that is read as the tag."""
    tools: Annotated[tuple[ToolName, ...], BeforeValidator(_as_tuple)] = ()
    """The tools of the task; the first one is named in examples. Without any, the only action is the answer."""
    cites: bool = True
    """Whether the answer cites snippets."""
    answers_at_once: bool = False
    """Whether the first turn may answer, without a tool call before it."""
    lenient: Annotated[tuple[CodeName, ...], BeforeValidator(_as_tuple)] = ()
    """Violations that strict mode accepts here, beside those that it accepts everywhere."""

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the stages, in order."""
        return tuple(stage.name for stage in self.stages)

    @property
    def last(self) -> str:
        """The last stage, which has the persistent rubrics."""
        return self.stages[-1].name

    @cached_property
    def working(self) -> str:
        """The stage of what belongs to no other: the one that loops, or else the last."""
        return next((stage.name for stage in self.stages if stage.loops), self.last)

    @cached_property
    def answer_tag(self) -> str:
        """The tag of the answer, which ends the episode."""
        return self.stages[-1].begins_with or ""

    @cached_property
    def loops(self) -> bool:
        """Whether a stage lies between the closed ones and the opened ones."""
        return any(stage.loops for stage in self.stages)

    @cached_property
    def calls_tools(self) -> bool:
        """Whether a tool call is an action."""
        return any(CALL_TOOL in stage.holds for stage in self.stages)

    def position(self, stage: str) -> int:
        """The index of a stage in the order, from 0; the row of the stage matrix."""
        return self.names.index(stage)

    def form(self, stage: str) -> StageForm:
        """The stage of that name."""
        return self.stages[self.position(stage)]

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """The blocks that are no actions, in the order in which a turn has them: what is weighed, then by stage."""
        held = chain.from_iterable(stage.holds for stage in self.stages)
        own = (stage.block for stage in self.stages[:-1] if stage.block)
        return tuple(tag for tag in chain(held, own) if tag != CALL_TOOL)

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        for problem in chain(self._unbounded(), self._overlapping(), self._unknown()):
            raise ValueError(problem)
        return self

    def _unbounded(self) -> Iterator[str]:
        last = self.stages[-1]
        if last.begins_with is None or last.ends_with is not None or last.holds or last.from_thought:
            yield (
                f"the last stage is {last.name!r}, which no answer opens; it has begins_with alone, the tag of the "
                "answer. Write begins_with"
            )
        between = False
        opened = False
        for stage in self.stages:
            if stage.ends_with and stage.begins_with:
                yield f"the stage {stage.name!r} has ends_with and begins_with; a stage has one boundary. Leave one out"
            if stage.block and stage.holds:
                yield f"the stage {stage.name!r} has a boundary and holds blocks; only the stage between holds blocks"
            if stage.from_thought and not stage.begins_with:
                yield f"the stage {stage.name!r} begins at a thought before no block; from_thought needs begins_with"
            if stage.loops and (between or opened):
                yield (
                    f"nothing closes the stage {stage.name!r}; only one stage lies between those that ends_with closes "
                    "and those that begins_with opens. Give it ends_with or begins_with"
                )
            if stage.loops and not stage.holds:
                yield f"the stage {stage.name!r} holds no block; name in holds what makes it, such as call_tool"
            if stage.ends_with and (between or opened):
                yield (
                    f"the stage {stage.name!r} ends with its block after a stage that has no end of its own; the "
                    "stages that ends_with closes come first. Write begins_with"
                )
            between = between or stage.loops
            opened = opened or stage.begins_with is not None

    def _overlapping(self) -> Iterator[str]:
        names = list(self.names)
        if len(set(names)) < len(names):
            yield f"two stages are called {_twice(names)!r}; each has a name of its own"
        tags = [tag for stage in self.stages for tag in stage.makers if tag != CALL_TOOL]
        tags += [*chain.from_iterable(self.sections.values()), *self.aliases.values(), *COMMON_TAGS, *KEPT_TAGS]
        if len(set(tags)) < len(tags):
            yield f"the tag <{_twice(tags)}> has two meanings; each block, section and alias has a name of its own"

    def _unknown(self) -> Iterator[str]:
        known = {tag for stage in self.stages for tag in stage.makers} - {CALL_TOOL, self.answer_tag}
        for tag in self.sections:
            if tag not in known:
                yield f"<{tag}> has sections and is no block of a stage; the blocks are {', '.join(sorted(known))}"
        known |= {*chain.from_iterable(self.sections.values()), *COMMON_TAGS, self.answer_tag}
        for tag in self.aliases:
            if tag not in known:
                yield f"<{tag}> has an alias and is no tag of the scaffold; the tags are {', '.join(sorted(known))}"
        if bool(self.tools) != self.calls_tools:
            yield (
                "tools and call_tool go together: a stage that holds call_tool needs tools, and tools need such a "
                f"stage; here tools is {list(self.tools)} and {'a' if self.calls_tools else 'no'} stage holds call_tool"
            )


@lru_cache(maxsize=64)
def same_scaffold(scaffold: Scaffold) -> Scaffold:
    """One object for equal scaffolds, so that comparing them costs nothing."""
    return scaffold


def _twice(names: list[str]) -> str:
    return next(name for place, name in enumerate(names) if name in names[:place])
