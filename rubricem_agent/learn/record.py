"""The record of a run for the viewer: rollouts with their judgements, rubrics step by step, and the bank.

    record/
      groups.jsonl     a line for each question of each step: rubrics in use, new and retired, lessons shown
      rollouts.jsonl   a line for each attempt: the trajectory, its judgement, its credit, its tokens
      groups.index.jsonl, rollouts.index.jsonl
                       a short line for each of those: its position in the file, and what a list shows of it
      lessons.jsonl    a line for each change of the bank: the item at that time, with its vector
      vocabulary.json  the text of each token id

The first line of an index names the format and the recording; a resumed run removes what it repeats and gives the
recording a new name. Readers take complete lines only. The index is written after what it points to. Nothing here is
needed to train or to resume.
"""

import base64
import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from rubricem_agent.files import LineFile, write_atomic, writing
from rubricem_agent.learn.credit import Credit
from rubricem_agent.memory.bank import Retrieved
from rubricem_agent.memory.store import BankItem, StoredItem
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.tokens import PackedTokens, pack_tokens
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Rubric
from rubricem_env.judge.judgements import GroupJudgement, RolloutJudgement
from rubricem_env.judge.rubric_set import ActiveRubric, RetiredRubric, RubricSet

RECORD_VERSION = 1
RECORD_FOLDER = "record"
GROUPS, ROLLOUTS, LESSONS = "groups", "rollouts", "lessons"
VOCABULARY_FILE = "vocabulary.json"
QUESTION_CHARS = 500
"""Of a question in an index."""

Count = Annotated[int, Field(ge=0, le=2**53)]
"""At most what a number of JSON can hold exactly."""
Number = float | None
FourNumbers = tuple[Number, Number, Number, Number]


class Header(Frozen):
    """The first line of an index, and of the lessons. A newer release may say more in it, and is still known as newer."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    record: int
    """The version of the format."""
    name: Text
    """Of this recording: another one after every resume."""
    embedder: Text = ""
    """Of the lessons' vectors."""


class ShownLesson(Frozen):
    """An item of the bank that stood before a question."""

    item: Annotated[int, Field(ge=1)]
    similarity: float


class GroupEntry(Frozen):
    """One question of one step."""

    step: Count
    place: Count
    """Among the questions of its step."""
    encounter: Text = ""
    query_key: Text
    question: Text
    judge: Text = ""
    rubrics: tuple[Rubric, ...] = ()
    """All that the group was marked by."""
    active: tuple[ActiveRubric, ...] = ()
    """In use after the step, with the variance of their marks."""
    retired: tuple[RetiredRubric, ...] = ()
    """Taken out of use in this step."""
    refused: tuple[Text, ...] = ()
    proposal_failure: Text = ""
    lessons: tuple[ShownLesson, ...] = ()


class RolloutEntry(Frozen):
    """One attempt."""

    step: Count
    place: Count
    """Its group's place in the step."""
    attempt: Count
    rollout: Rollout
    """Without its tokens."""
    tokens: PackedTokens | None = None
    judged: RolloutJudgement
    true: FourNumbers | None = None
    returns: FourNumbers | None = None
    advantages: FourNumbers | None = None
    trained: bool = False

    @property
    def is_valid(self) -> bool:
        """Whether neither the world nor the judge lost it."""
        return self.rollout.is_valid and self.judged.is_valid


class GroupHead(Frozen):
    """What the index says of a group."""

    at: Count
    """The byte at which its line begins."""
    size: Count
    """Bytes of the line, without the line break."""
    step: Count
    place: Count
    query_key: Text
    question: Text
    encounter: Text = ""
    active: Count = 0
    retired: Count = 0
    lessons: tuple[ShownLesson, ...] = ()

    @property
    def id(self) -> str:
        """The name of the group in the viewer."""
        return f"{self.step}-{self.place}"


class RolloutHead(Frozen):
    """What the index says of a rollout."""

    at: Count
    size: Count
    step: Count
    place: Count
    attempt: Count
    scores: FourNumbers
    true: FourNumbers
    valid: bool
    complete: bool
    ending: Text
    calls: Count
    tokens: Count
    violations: Count


class LessonLine(Frozen):
    """One change of the bank."""

    step: Count
    item: BankItem
    vector: Text
    """Of its question, little-endian float32 in base64."""


Entry = TypeVar("Entry", GroupEntry, RolloutEntry)


class RunRecorder:
    """The record of one run, in its folder. One process writes it at a time; any number may read meanwhile."""

    def __init__(self, folder: Path, *, switch: str = "record=false") -> None:
        self._folder = folder
        self._switch = switch
        """How the run is told to keep none."""
        self._way_out = f"Make room, or train with {switch}."
        self.bank_revision = 0
        """The latest change of the bank that is in the record."""

    def begin(self, step: int, *, embedder: str) -> None:
        """Go on after `step`: what was recorded of later ones is cut off. Call it once before anything is recorded.

        `embedder` is the bank's, by name.

        Raises:
            UsageError: the folder cannot be written, or a line in it cannot be read.
        """
        header = Header(record=RECORD_VERSION, name=secrets.token_hex(8))
        with writing(self._folder, self._way_out):
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                for kind in (ROLLOUTS, GROUPS):
                    self._cut(kind, step, header)
                kept = [line for line in _lines(self._path(LESSONS)) if json.loads(line)["step"] <= step]
                self.bank_revision = max((json.loads(line)["item"]["revision"] for line in kept), default=0)
                _replace(self._path(LESSONS), header.model_copy(update={"embedder": embedder}), kept)
            except (ValueError, KeyError, TypeError, RecursionError) as cause:
                raise UsageError(
                    f"a line of the record {self._folder} cannot be read, so it cannot be gone on with. Move that folder "
                    f"away, and the same command begins a new one at its step; or train with {self._switch}."
                ) from cause

    def record_step(self, entries: Iterable[tuple[GroupEntry, Sequence[RolloutEntry]]]) -> None:
        """Append the groups of a step with their rollouts.

        Raises:
            UsageError: the disk refuses.
        """
        for group, rollouts in entries:
            self._append(GROUPS, [group], group_head)
            self._append(ROLLOUTS, rollouts, rollout_head)

    def record_lessons(self, changed: Sequence[StoredItem], *, step: int) -> None:
        """Append what has changed in the bank: `bank.contents(since=recorder.bank_revision)`."""
        lines = [
            LessonLine(step=step, item=item, vector=base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii"))
            for item, vector in changed
        ]
        self._write(self._path(LESSONS), [line.model_dump_json().encode() for line in lines])
        self.bank_revision = max([self.bank_revision, *(line.item.revision for line in lines)])

    def record_vocabulary(self, texts: Callable[[], Sequence[str]]) -> None:
        """Write what each token says, unless it is there."""
        path = self._folder / VOCABULARY_FILE
        if not path.exists():
            content = json.dumps(texts(), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
            write_atomic(path, content)

    def _append(self, kind: str, entries: Sequence[Entry], head_of: Callable[[Entry, int, int], Frozen]) -> None:
        lines = [entry.model_dump_json().encode() for entry in entries]
        at = self._write(self._path(kind), lines)
        heads = []
        for entry, line in zip(entries, lines, strict=True):
            heads.append(head_of(entry, at, len(line)).model_dump_json().encode())
            at += len(line) + 1
        self._write(self._index(kind), heads)

    def _write(self, path: Path, lines: Sequence[bytes]) -> int:
        """Append whole lines; returns the byte at which they begin."""
        with writing(self._folder, self._way_out):
            return LineFile(path).append(lines)

    def _cut(self, kind: str, step: int, header: Header) -> None:
        """Keep the lines up to `step`, in the data and in its index."""
        kept = []
        end = 0
        for line in _lines(self._index(kind)):
            fields = json.loads(line)
            if fields["step"] > step:
                break
            kept.append(line)
            end = fields["at"] + fields["size"] + 1
        with self._path(kind).open("ab") as file:
            file.truncate(end)
        _replace(self._index(kind), header, kept)

    def _path(self, kind: str) -> Path:
        return self._folder / f"{kind}.jsonl"

    def _index(self, kind: str) -> Path:
        return self._folder / f"{kind}.index.jsonl"


def group_head(entry: GroupEntry, at: int, size: int) -> GroupHead:
    """What a list shows of a group."""
    shown = entry.model_dump(include={"step", "place", "query_key", "encounter", "lessons"})
    shown |= {"question": entry.question[:QUESTION_CHARS], "active": len(entry.active), "retired": len(entry.retired)}
    return GroupHead(at=at, size=size, **shown)


def rollout_head(entry: RolloutEntry, at: int, size: int) -> RolloutHead:
    """What a list shows of a rollout."""
    parsed = entry.rollout.parsed
    nothing: FourNumbers = (None, None, None, None)
    return RolloutHead(
        at=at,
        size=size,
        step=entry.step,
        place=entry.place,
        attempt=entry.attempt,
        scores=entry.judged.judgement.scores,
        true=entry.true or nothing,
        valid=entry.is_valid,
        complete=parsed.is_complete,
        ending=parsed.trajectory.ending.value if parsed.trajectory.ending else "",
        calls=sum(turn.call is not None for turn in parsed.turns),
        tokens=entry.tokens.length if entry.tokens is not None else 0,
        violations=len(parsed.violations),
    )


def _lines(path: Path) -> list[str]:
    """The whole lines after the first; nothing of a file that is not there, or that another format wrote."""
    try:
        text = path.read_text(encoding="utf-8")
        header, *rest = text[: text.rfind("\n") + 1].split("\n")[:-1] or [""]
        return rest if Header.model_validate_json(header).record == RECORD_VERSION else []
    except (FileNotFoundError, UnicodeDecodeError, ValidationError):
        return []


def _replace(path: Path, header: Header, lines: Sequence[str]) -> None:
    content = "".join(f"{line}\n" for line in (header.model_dump_json(), *lines)).encode()
    write_atomic(path, content)


def record_group(
    judged: GroupJudgement,
    rollouts: Sequence[Rollout],
    credit: Credit,
    *,
    rubrics: RubricSet,
    encounter: str,
    question: str,
    shown: Sequence[Retrieved],
    true: Sequence[Sequence[float]] = (),
    place: int = 0,
    first_row: int = 0,
) -> tuple[GroupEntry, list[RolloutEntry]]:
    """One question of a step and its attempts: as they were judged, what each was worth, and whether an update uses it.

    `rubrics` as the judgement has left them, `shown` the lessons that stood before the question; the group's rows in
    `credit` begin at `first_row`. `true` has the true quality of each attempt, where it is known.
    """
    group = GroupEntry(
        step=judged.step,
        place=place,
        encounter=encounter,
        query_key=judged.query_key,
        question=question,
        judge=judged.judge,
        rubrics=judged.rubrics,
        active=rubrics.active,
        retired=tuple(gone for gone in rubrics.archive if gone.retired_step == judged.step),
        refused=judged.refused,
        proposal_failure=judged.proposal_failure,
        lessons=tuple(ShownLesson(item=hit.item.id, similarity=round(hit.similarity, 4)) for hit in shown),
    )
    entries = []
    for attempt, (rollout, outcome) in enumerate(zip(rollouts, judged.rollouts, strict=True)):
        row, tokens = first_row + attempt, rollout.tokens
        entry = RolloutEntry(
            step=judged.step,
            place=place,
            attempt=attempt,
            rollout=rollout.model_copy(update={"tokens": None}),
            tokens=pack_tokens(tokens) if tokens is not None else None,
            judged=outcome,
            true=_four_numbers(true[attempt]) if true else None,
            returns=_four_numbers(credit.returns[row].tolist()),
            advantages=_four_numbers(credit.advantages[row].tolist()),
            # An attempt without a token of its own has nothing to train.
            trained=bool(credit.trainable[row]) and tokens is not None and bool(tokens.policy_mask.any()),
        )
        entries.append(entry)
    return group, entries


def _four_numbers(numbers: Sequence[float]) -> tuple[float, float, float, float]:
    """One number a stage."""
    plan, research, review, answer = numbers
    return plan, research, review, answer
