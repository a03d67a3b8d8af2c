"""What the policy reads of an episode: the whole record, or one whose older turns are folded.

The view follows from the record and its folds alone. Of a folded turn it has the blocks of the stage that loops, which
weigh what was found, and the tool call; of what was read after it one line. The plan, which is every block that closes
a stage, stands first, each section in its latest revision. Thoughts and text outside of blocks are left out.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import Fold, Observation, Origin, Segment, Source, ToolStatus, Trajectory
from rubricem_env.scaffold.grammar import CALL_TOOL
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.scaffold.snippets import held_ids
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_env.scaffold.untrusted import neutralize
from rubricem_env.tools.render import CUT, render_notice

MAX_TITLE_SHOWN = 100
"""Characters of a title in the line of a folded observation."""
LEFT_OUT = "Folded: earlier calls that are left out with their results: {turns}"
WEIGHED_TOO = "; with what they led to: the first {turns}"


NOTHING = "(nothing)"
"""What stands in a chat for an empty message."""


_UNREAD = Segment(origin=Origin.TOOL, text="")


class ViewedTurn(NamedTuple):
    """A turn as the policy reads it later, and what it reads after it."""

    number: int
    """Its number in the record, from 1; 0 for what stands before all turns."""
    text: str
    observation: str
    is_whole: bool
    """Whether both are as they were."""


class View(NamedTuple):
    """What the policy reads before its next turn."""

    prompt: str
    turns: tuple[ViewedTurn, ...]

    @property
    def text(self) -> str:
        """All of it, as one text."""
        return "".join([self.prompt, *(part for turn in self.turns for part in (turn.text, turn.observation))])

    @property
    def messages(self) -> list[dict[str, str]]:
        """The same as messages of a chat, without a system message."""
        messages = [{"role": "user", "content": self.prompt}]
        for turn in self.turns:
            # No chat server takes an empty message.
            messages.append({"role": "assistant", "content": turn.text or NOTHING})
            messages.append({"role": "user", "content": turn.observation or NOTHING})
        return messages


class RecordedTurn:
    """A turn of the record with what was read after it, in the forms that a view has of it."""

    def __init__(self, number: int, text: str, read: Segment, *, scaffold: Scaffold) -> None:
        self.number = number
        self.read = read
        self._text = text
        self._scaffold = scaffold

    @property
    def written(self) -> Segment:
        """Its text, as a segment."""
        return Segment(origin=Origin.POLICY, text=self._text)

    @cached_property
    def turn(self) -> Turn:
        """Its kept text, parsed as a reader of the record parses it."""
        return parse_turn(self._text, self.number, self._scaffold)

    @property
    def whole(self) -> ViewedTurn:
        return ViewedTurn(self.number, self._text, self.read.text, is_whole=True)

    def weighed(self, clip: int = 0) -> str:
        """Its blocks of the stage that loops, without the call."""
        held = {tag for stage in self._scaffold.stages for tag in stage.holds if tag != CALL_TOOL}
        return "".join(_written(block, self.turn.text, clip) for block in self.turn.blocks if block.name in held)

    def brief(self, clip: int = 0) -> str:
        """What it weighed, and its call; empty where it has neither."""
        call = self.turn.last(CALL_TOOL) if self.turn.call is not None else None
        return self.weighed(clip) + ("" if call is None else _written(call, self.turn.text, clip))

    def line(self, *, has_titles: bool) -> str:
        """What was read after it, as one line: ids and titles of the snippets, or how the call ended."""
        record = self.read.observation or Observation()
        ids = tuple(held_ids(self.read.text, record.snippet_ids))
        said = _listed(ids, record, has_titles=has_titles) if ids else _outcome(record)
        # The line is the environment's, so nothing in it may be read as a tag or as a line of its own.
        return render_notice(neutralize(" ".join(f"Folded: {said}.".split()), self._scaffold))


def view_of(prompt: str, turns: Sequence[RecordedTurn], fold: Fold | None, scaffold: Scaffold) -> View:
    """The view after `turns`, of which the last fold was `fold`."""
    if fold is None:
        return View(prompt, tuple(turn.whole for turn in turns))
    return View(prompt, (*_folded(turns[: fold.turn], fold, scaffold), *(turn.whole for turn in turns[fold.turn :])))


class Window(NamedTuple):
    """What the policy wrote between two folds."""

    view: View
    """What it read before the first of its turns."""
    turns: tuple[RecordedTurn, ...]

    @property
    def text(self) -> str:
        """What it read first, and each turn with what was read after it."""
        return self.view.text + "".join(turn.written.text + turn.read.text for turn in self.turns)


def windows_of(trajectory: Trajectory) -> Iterator[Window]:
    """The windows of a record, in order; a record without folds is one. The last one has no turn yet after a fold."""
    turns = _turns_of(trajectory)
    folds = (None, *trajectory.folds)
    starts = [0 if fold is None else fold.turn for fold in folds]
    for fold, start, end in zip(folds, starts, (*starts[1:], len(turns)), strict=True):
        view = view_of(_prompt_of(trajectory), turns[:start], fold, trajectory.scaffold)
        yield Window(view, tuple(turns[start:end]))


def views_of(trajectory: Trajectory) -> Iterator[View]:
    """What the policy read before each of its turns, in order."""
    for view, turns in windows_of(trajectory):
        for index in range(len(turns)):
            yield View(view.prompt, (*view.turns, *(turn.whole for turn in turns[:index])))


def next_view(trajectory: Trajectory) -> View:
    """What the policy reads after the record."""
    fold = trajectory.folds[-1] if trajectory.folds else None
    return view_of(_prompt_of(trajectory), _turns_of(trajectory), fold, trajectory.scaffold)


def _prompt_of(trajectory: Trajectory) -> str:
    return next((segment.text for segment in trajectory.segments if segment.origin is Origin.PROMPT), "")


def _turns_of(trajectory: Trajectory) -> list[RecordedTurn]:
    segments = trajectory.segments
    turns: list[RecordedTurn] = []
    for segment, after in zip(segments, (*segments[1:], None), strict=True):
        if segment.origin is Origin.POLICY:
            read = after if after is not None and after.origin is Origin.TOOL else _UNREAD
            turns.append(RecordedTurn(len(turns) + 1, segment.text, read, scaffold=trajectory.scaffold))
    return turns


def plan_of(turns: Sequence[RecordedTurn], later: Sequence[RecordedTurn], scaffold: Scaffold, *, clip: int = 0) -> str:
    """The latest revision of each section of the blocks that close a stage, without those that are revised later."""
    return "".join(
        _revised(stage.ends_with, turns, later, scaffold=scaffold, clip=clip)
        for stage in scaffold.stages
        if stage.ends_with
    )


def _folded(turns: Sequence[RecordedTurn], fold: Fold, scaffold: Scaffold) -> Iterator[ViewedTurn]:
    """The turns up to a fold."""
    older = len(turns) - fold.whole
    uncalled = fold.left_out + fold.weighed
    lead = plan_of(turns[:older], turns[older:], scaffold, clip=fold.clip)
    lead += "".join(recorded.weighed(fold.clip) for recorded in turns[fold.left_out : uncalled])
    if uncalled:
        said = LEFT_OUT.format(turns=uncalled) + (WEIGHED_TOO.format(turns=fold.left_out) if fold.left_out else "")
        yield ViewedTurn(0, lead, render_notice(f"{said}."), is_whole=False)
        lead = ""
    for index, recorded in enumerate(turns[uncalled:older], uncalled):
        is_latest = index == len(turns) - 1
        text = lead + recorded.brief(fold.clip)
        if not (text or is_latest):
            # A turn that weighed nothing and called nothing leaves nothing behind.
            continue
        read = recorded.read.text if is_latest else recorded.line(has_titles=index >= uncalled + fold.untitled)
        yield ViewedTurn(recorded.number, text, read, is_whole=False)
        lead = ""
    yield from (recorded.whole for recorded in turns[older:])


def _written(block: Block, text: str, clip: int) -> str:
    """The block as it was written, closed, and cut to `clip` characters between its tags."""
    inner = block.inner(text)
    if not clip or len(inner) <= clip:
        return text[block.start : block.end] + ("" if block.is_closed else f"</{block.name}>")
    return f"{text[block.start : block.inner_start]}{inner[:clip].rstrip()}{CUT}</{block.name}>"


def _revised(
    tag: str, turns: Sequence[RecordedTurn], later: Sequence[RecordedTurn], *, scaffold: Scaffold, clip: int
) -> str:
    """The block of a tag, of its latest sections; as it was written where they all are of one."""
    latest: dict[str, tuple[Block, RecordedTurn, Block]] = {}
    for recorded in turns:
        for block in recorded.turn.named(tag):
            if not block.sections:
                # Without sections it is the whole block of its time.
                latest.clear()
            latest |= {part.name: (part, recorded, block) for part in block.sections or (block,)}
    for block in (block for recorded in later for block in recorded.turn.named(tag)):
        for name in [part.name for part in block.sections] or list(latest):
            latest.pop(name, None)
    sources = [(block, recorded.turn.text) for _, recorded, block in latest.values()]
    if not clip and latest and sources.count(sources[0]) == len(sources) == len(sources[0][0].sections or (1,)):
        return _written(*sources[0], clip)
    whole = latest.pop(tag, None)
    order = scaffold.sections.get(tag, ())
    parts = [latest[name] for name in order if name in latest]
    inner = "".join(_written(part, recorded.turn.text, clip) for part, recorded, _ in parts)
    before = "" if whole is None else _written(whole[0], whole[1].turn.text, clip)
    return before + (f"<{tag}>{inner}</{tag}>" if inner else "")


def _listed(ids: Sequence[str], record: Observation, *, has_titles: bool) -> str:
    if not has_titles:
        return ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
    sources = dict(zip(record.snippet_ids, record.sources, strict=False))
    return ", ".join(f"{key}{_quoted(sources[key]) if key in sources else ''}" for key in ids)


def _quoted(source: Source) -> str:
    """A title between quotes that nothing in it can close."""
    title = " ".join(source.title[:MAX_TITLE_SHOWN].split()).replace('"', "'")
    return f' "{title}"' if title else ""


def _outcome(record: Observation) -> str:
    if record.status is None:
        return "a notice"
    if record.status.is_error:
        return f"the call failed ({record.status.value})"
    return "nothing was found" if record.status is ToolStatus.EMPTY else "a result without snippets"
