"""Rubrics of questions: the set of one question, the buffer of all, dropout, admission of proposals, and rubric files."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Annotated, Any, Literal, Self
from weakref import WeakValueDictionary

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictBool, TypeAdapter, model_validator

from rubricem_env.domain.base import STAGES, Frozen, Stage, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import validating
from rubricem_env.domain.judgement import Polarity, Rubric
from rubricem_env.judge.scoring import score_variance
from rubricem_env.scaffold.admission import find_fault
from rubricem_env.scaffold.copies import COPIED_WORDS, ShownText

Step = Annotated[int, Field(ge=0)]


class StageCaps(Frozen):
    """How many active rubrics each stage keeps; the defaults are the paper's (section C.4)."""

    plan: Annotated[int, Field(ge=0)] = 3
    research: Annotated[int, Field(ge=0)] = 2
    review: Annotated[int, Field(ge=0)] = 2
    answer: Annotated[int, Field(ge=0)] = 3

    def of(self, stage: Stage) -> int:
        return (self.plan, self.research, self.review, self.answer)[stage.position]


class ActiveRubric(Frozen):
    """A rubric in use."""

    rubric: Rubric
    created_step: Step
    last_step: Step
    """When it was last proposed."""
    variance: float | None = None
    """Of its scores, when they were last measured; None if never."""

    @property
    def rank(self) -> tuple[float, float, int, int, str]:
        """The sort key for keeping rubrics, best first (choice B9); unmeasured ones come last."""
        variance = -1.0 if self.variance is None else self.variance
        return (-variance, -self.rubric.weight, -self.last_step, -self.created_step, self.rubric.id)


RetiredReason = Literal["separates_nothing", "over_cap"]
"""All rollouts got the same score, or others of the stage separated the group better."""


class RetiredRubric(Frozen):
    """A rubric out of use; it becomes active again when it is proposed again."""

    last: ActiveRubric
    reason: RetiredReason
    retired_step: Step


class RubricSet(Frozen):
    """The rubrics of one question, as an immutable value. A rubric is in at most one of the three fields."""

    persistent: tuple[Rubric, ...] = ()
    """From the data set, Answer stage only, never retired."""
    active: tuple[ActiveRubric, ...] = ()
    archive: tuple[RetiredRubric, ...] = ()
    """Oldest first."""

    @property
    def rubrics(self) -> tuple[Rubric, ...]:
        """All rubrics in use, persistent ones first."""
        return (*self.persistent, *(entry.rubric for entry in self.active))

    def with_persistent(self, rubrics: Iterable[Rubric]) -> "RubricSet":
        """Replace the data set's rubrics; active and retired rubrics of the same wording are dropped."""
        persistent = tuple({rubric.id: rubric for rubric in rubrics}.values())
        if persistent == self.persistent:
            return self
        ids = {rubric.id for rubric in persistent}
        return RubricSet(
            persistent=persistent,
            active=tuple(entry for entry in self.active if entry.rubric.id not in ids),
            archive=tuple(entry for entry in self.archive if entry.last.rubric.id not in ids),
        )

    def with_proposed(self, rubrics: Iterable[Rubric], *, step: int) -> "RubricSet":
        """Add proposals: a new one becomes active, an active one is refreshed, a retired one becomes active again.

        A proposal with the wording of another rubric of its stage is left out, whatever its polarity.
        """
        active = {entry.rubric.id: entry for entry in self.active}
        retired = {entry.last.rubric.id: entry for entry in self.archive}
        persistent = {rubric.id for rubric in self.persistent}
        said = {(rubric.stage, rubric.wording): rubric.id for rubric in self.rubrics}
        for rubric in rubrics:
            if said.setdefault((rubric.stage, rubric.wording), rubric.id) != rubric.id or rubric.id in persistent:
                continue
            known = active.get(rubric.id) or (retired.pop(rubric.id).last if rubric.id in retired else None)
            fresh = ActiveRubric(rubric=rubric, created_step=step, last_step=step)
            active[rubric.id] = known.model_copy(update={"last_step": step}) if known else fresh
        archive = tuple(entry for entry in self.archive if entry.last.rubric.id in retired)
        return RubricSet(persistent=self.persistent, active=tuple(active.values()), archive=archive)

    def pruned(
        self, scores: Mapping[str, Sequence[float]], *, caps: StageCaps, step: int, archive_limit: int
    ) -> "RubricSet":
        """Retire rubrics that separate nothing, then reduce each stage to its cap (choices B8-B11).

        `scores` has each rubric's scores over the valid rollouts. With fewer than two there is nothing to measure, and
        the rubric keeps its variance.
        """
        variances = {key: score_variance(own) for key, own in scores.items() if len(own) > 1}
        measured = [
            entry.model_copy(update={"variance": variances.get(entry.rubric.id, entry.variance)})
            for entry in self.active
        ]
        flat = {key for key, variance in variances.items() if variance == 0.0}
        kept = _within_caps([entry for entry in measured if entry.rubric.id not in flat], caps)
        retired = tuple(
            RetiredRubric(
                last=entry, reason="separates_nothing" if entry.rubric.id in flat else "over_cap", retired_step=step
            )
            for entry in measured
            if entry.rubric.id not in kept
        )
        archive = (*self.archive, *retired)
        return RubricSet(
            persistent=self.persistent,
            active=tuple(entry for entry in measured if entry.rubric.id in kept),
            archive=archive[max(0, len(archive) - archive_limit) :],
        )


def _within_caps(entries: Sequence[ActiveRubric], caps: StageCaps) -> set[str]:
    return {
        entry.rubric.id
        for stage in STAGES
        for entry in sorted((e for e in entries if e.rubric.stage is stage), key=attrgetter("rank"))[: caps.of(stage)]
    }


def drop_rubrics(rubrics: Sequence[Rubric], share: float, *, rng: np.random.Generator) -> tuple[Rubric, ...]:
    """Drop each active rubric with the given probability. Persistent ones stay, and no stage loses its last rubric."""
    if share == 0.0:
        return tuple(rubrics)
    # Drawn in the order of ids, so that the result does not depend on the order of the list.
    draws = {rubric.id: rng.random() for rubric in sorted(rubrics, key=lambda rubric: rubric.id)}
    kept = {rubric.id for rubric in rubrics if rubric.persistent or draws[rubric.id] >= share}
    for stage in STAGES:
        own = [rubric for rubric in rubrics if rubric.stage is stage]
        if own and not any(rubric.id in kept for rubric in own):
            kept.add(max(own, key=lambda rubric: draws[rubric.id]).id)
    return tuple(rubric for rubric in rubrics if rubric.id in kept)


MAX_TITLE_CHARS = 200
MAX_DESCRIPTION_CHARS = 1_500
"""About twice the 80 words that the prompt asks for, in a language of long words."""
_WORDING = re.compile(
    r"\b(?:contains?|includes?|repeats?|(?:begins?|ends?|starts?)\s+with)\s+the\s+(?:exact\s+)?"
    r"(?:phrase|string|token|sentence|words?)\s+[\"'“‘«](?P<quoted>[^\"'”’»]{2,})",
    re.IGNORECASE,
)
_TAGS = re.compile(r"\b(?:xml\s+)?tags?\s+(?:is|are)\s+(?:present|closed)\b", re.IGNORECASE)


def refuse_rubric(rubric: Rubric, shown: ShownText, *, question: str = "") -> str | None:
    """Why the proposed rubric is refused, as "code: sentence", or None.

    A rubric is a short criterion, in words of its own, that speaks of attempts: no page's text and no order to the judge.
    """
    text = f"{rubric.title}. {rubric.description}"
    code, fault = "", ""
    wording = _WORDING.search(text)
    if not (rubric.title.strip() and rubric.description.strip()):
        code, fault = "format", "has no title or no description"
    elif len(rubric.title) > MAX_TITLE_CHARS or len(rubric.description) > MAX_DESCRIPTION_CHARS:
        code, fault = "too_long", "is too long"
    elif found := find_fault(rubric.title, "criterion", shown=shown, question=question) or find_fault(
        rubric.description, "criterion", shown=shown, question=question
    ):
        code, fault = found.code, f"{found.sentence}: {found.shown}"
    elif _TAGS.search(text) or (wording and shown.mentions(wording["quoted"])):
        code, fault = "wording", "is about tags, or asks for words of a page"
    elif shown.find_copy(f"{rubric.title} {rubric.description}"):
        code, fault = "copied", f"copies {COPIED_WORDS} words in a row from a page"
    return f"{code}: {rubric.stage.value} rubric {rubric.title[:60]!r} {fault}" if fault else None


MAX_RUBRICS = 500


class RubricRow(BaseModel):
    """A rubric as a file has it; `read_rubrics` says what its fields mean."""

    model_config = ConfigDict(str_strip_whitespace=True)

    description: Text = ""
    title: Annotated[Text, Field(min_length=1)] = ""
    weight: Annotated[float, Field(strict=True, allow_inf_nan=False)] = 1.0
    stage: Stage = Stage.ANSWER
    polarity: Polarity = "positive"
    persistent: StrictBool = True

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if "polarity" in self.model_fields_set and self.weight < 0:
            raise ValueError(f"it has a polarity and the negative weight {self.weight:g}; give one or the other")
        if "persistent" in self.model_fields_set and self.persistent and self.stage is not Stage.ANSWER:
            raise ValueError(f"it is persistent in the stage {self.stage}; only answer rubrics are persistent")
        if self.weight and not self.description:
            raise ValueError("it has no description; it needs a text")
        return self

    @property
    def rubric(self) -> Rubric:
        """The rubric of a row whose weight is not 0."""
        return Rubric(
            stage=self.stage,
            title=self.title or self.description[:80],
            description=self.description,
            polarity="negative" if self.weight < 0 else self.polarity,
            weight=abs(self.weight),
            persistent=self.persistent and self.stage is Stage.ANSWER,
        )


def read_rubrics(text: str, where: str) -> tuple[Rubric, ...]:
    """The rubrics of a file's text; `where` names the file in messages.

    A row is {"title", "description", "weight"}: a persistent rubric of the Answer stage whose negative weight makes
    it a flaw. With "stage" it may be any stage's, with "polarity" its weight must be positive, and "persistent"
    tells whether it can be retired: by default only answer rubrics cannot. Rows with the weight 0 are dropped.

    Raises:
        FileFormatError: not such a list, naming the first row that is wrong.
    """
    rows = _rows(text, where)
    if len(rows) > MAX_RUBRICS:
        raise FileFormatError(f"{where} holds {len(rows)} rubrics; at most {MAX_RUBRICS} are read for one question.")
    found = {}
    for number, row in enumerate(rows, start=1):
        with validating(f"{where}, rubric {number}", "A rubric has title, description and weight, below 0 for a flaw."):
            read = RubricRow.model_validate(row)
        if read.weight:
            rubric = read.rubric
            found[rubric.id] = rubric
    return tuple(found.values())


def _rows(text: str, where: str) -> list[object]:
    if not text.strip():
        raise FileFormatError(f"{where} is empty; it should hold a JSON list of rubrics, or one rubric a line.")
    try:
        whole = json.loads(text)
    except RecursionError as cause:
        raise FileFormatError(f"{where} is nested too deeply to be a list of rubrics.") from cause
    except ValueError:
        rows = []
        for number, line in enumerate(text.split("\n"), start=1):
            try:
                rows += [json.loads(line)] if line.strip() else []
            except (ValueError, RecursionError) as cause:
                raise FileFormatError(
                    f"{where} is neither a JSON list nor JSON lines: line {number} says {line.strip()[:40]!r}."
                ) from cause
        return rows
    return whole if isinstance(whole, list) else [whole]


_STATE = TypeAdapter(tuple[Literal[1], dict[str, str]])
"""A rubric buffer in a checkpoint: its version, and each question's rubrics as JSON text."""


class RubricBuffer:
    """Rubrics by query key. Reading needs no lock; who reads, awaits and writes must do so within `editing`."""

    def __init__(self, questions: Mapping[str, RubricSet] | None = None) -> None:
        self._questions = dict(questions or {})
        # Each question's state as text, cached: a step changes 32 questions of thousands.
        self._texts: dict[str, str] = {}
        self._locks: WeakValueDictionary[tuple[str, int], asyncio.Lock] = WeakValueDictionary()

    def rubrics(self, query_key: str) -> RubricSet:
        """The question's rubrics; empty for an unknown question."""
        return self._questions.get(query_key) or RubricSet()

    def replace(self, query_key: str, rubrics: RubricSet) -> None:
        self._questions[query_key] = rubrics
        self._texts.pop(query_key, None)

    @asynccontextmanager
    async def editing(self, query_key: str) -> AsyncIterator[RubricSet]:
        """The question's rubrics, for one caller at a time; other questions do not wait."""
        # A lock belongs to the event loop in which it was first awaited, so each loop has its own.
        key = (query_key, id(asyncio.get_running_loop()))
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            yield self.rubrics(query_key)

    def state_dict(self) -> dict[str, Any]:
        """Everything, as JSON values: each question's rubrics as JSON text. Equal buffers give equal states."""
        for key, rubrics in self._questions.items():
            if key not in self._texts:
                self._texts[key] = rubrics.model_dump_json()
        return {"version": 1, "questions": {key: self._texts[key] for key in sorted(self._questions)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; nothing changes when it is refused.

        Raises:
            FileFormatError: of another version, or malformed.
        """
        with validating("the rubric buffer's state is malformed, or of another version"):
            # A file may hold anything, so that it need not be a mapping.
            given = (state.get("version"), state.get("questions")) if isinstance(state, Mapping) else state
            _, texts = _STATE.validate_python(given, strict=True)
            questions = {key: RubricSet.model_validate_json(text) for key, text in texts.items()}
        self._questions, self._texts = questions, texts
