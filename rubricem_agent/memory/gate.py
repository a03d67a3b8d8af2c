"""The write gate: decides which reflections may enter the bank, which outlives every page and policy they came from.

An accepted reflection appears in the prompts of later attempts. So it must be short guidance and nothing else: no
address, no key, no markup, no tool call, no order to a model, no request to a judge
(`rubricem_env.scaffold.admission`), no sentence copied from a page, nothing that a person has removed. The question is
shown with it and is checked alike.
"""

from collections.abc import Collection
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field

from rubricem_agent.memory.store import text_digest
from rubricem_env.domain.reflection import Reflection
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.settings import Settings
from rubricem_env.scaffold.admission import Kind, find_fault
from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_records.bank.bank_items import LessonOrigin

Limit = Annotated[int, Field(ge=1)]
RefusalCode = Literal[
    "format",  # not the two blocks, once each, in order, with something in them
    "too_long",
    "address",
    "key",  # looks like an API key
    "markup",  # a tag of the scaffold, a chat special, or any other tag
    "order",  # addresses a model with instructions
    "tool_call",
    "score_request",  # addresses a judge
    "unseen",  # characters that a reader does not see
    "script",  # a language that is neither English nor the question's, or a script that cannot be checked
    "copied",
    "second_reader",  # the judge, asked what the text is for, keeps it out
    "page_words",  # words that only pages brought
    "removed_before",
    "quarantined_before",
    "evaluation",  # the question is reserved for evaluation
    "score",  # below the score that the bank requires
]
"""Why a reflection did not enter the bank."""
TEXT_CODES = frozenset(get_args(RefusalCode)) - {
    "format",
    "removed_before",
    "quarantined_before",
    "evaluation",
    "score",
}
"""The refusals that the reflection's own text is the cause of."""


class Refusal(NamedTuple):
    """A reflection that was not let in: a value, for the record and the counts."""

    code: RefusalCode
    sentence: str


class GateLimits(Settings):
    """How long a reflection may be, and how good it must be; defaults hold what 2,048 tokens can say."""

    rubrics_chars: Limit = 6_000
    takeaways_chars: Limit = 4_000
    question_chars: Limit = 20_000
    reads_text: bool = True
    """False admits any text, copies of pages too: for measurements of the gate alone. The other limits stay."""
    page_words: Annotated[int, Field(ge=0)] | None = None
    """The most content words of a lesson that stand in tool text and neither in the question nor in what the policy
    wrote in the attempt. None: any number.
    """
    min_score: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Utility below this is refused; an unjudged reflection has none and passes."""


class WriteGate:
    """Decides by the text alone, so that the same reflection always meets the same answer."""

    def __init__(
        self,
        limits: GateLimits | None = None,
        *,
        evaluation_keys: Collection[str] = frozenset(),
        scaffold: Scaffold = DEFAULT,
    ) -> None:
        self.limits = limits or GateLimits()
        self._evaluation_keys = frozenset(evaluation_keys)
        self._scaffold = scaffold

    def refuse(
        self,
        reflection: Reflection,
        *,
        pages: ShownText | None = None,
        origin: LessonOrigin | None = None,
        removed: Collection[str] = frozenset(),
        quarantined: Collection[str] = frozenset(),
    ) -> Refusal | None:
        """Why the reflection may not enter, or None where it may.

        `pages` is what tools have shown in the attempt, `origin` says whose words the reflection has; `removed` and
        `quarantined` are the digests of texts that were withdrawn from the bank.
        """
        refusal = self._refuse_frame(reflection)
        if refusal is None and self.limits.reads_text:
            refusal = _refuse_text(reflection, pages, self._scaffold) or self._refuse_page_words(origin)
        if refusal is not None or not (removed or quarantined):
            return refusal
        digest = text_digest(reflection)
        if digest in removed:
            return Refusal("removed_before", "a person removed this text from the bank; it does not come back.")
        if digest in quarantined:
            return Refusal("quarantined_before", "this text is in quarantine; `rubricem bank approve` lets it out.")
        return None

    def _refuse_page_words(self, origin: LessonOrigin | None) -> Refusal | None:
        limit = self.limits.page_words
        if limit is None or origin is None or origin.from_pages <= limit:
            return None
        named = ", ".join(origin.page_words[:5])
        return Refusal(
            "page_words", f"{origin.from_pages} of its words come from pages alone, at most {limit} may: {named}."
        )

    def _refuse_frame(self, reflection: Reflection) -> Refusal | None:
        limits = self.limits
        if reflection.query_key in self._evaluation_keys:
            return Refusal("evaluation", "the question is reserved for evaluation; the bank may not learn it.")
        for part, text, limit in (
            ("rubrics", reflection.rubrics, limits.rubrics_chars),
            ("takeaways", reflection.takeaways, limits.takeaways_chars),
            ("question", reflection.question, limits.question_chars),
        ):
            if len(text) > limit:
                return Refusal("too_long", f"the {part} have {len(text):,} characters; at most {limit:,} may enter.")
        if reflection.score is not None and reflection.score.utility < limits.min_score:
            return Refusal("score", f"utility {reflection.score.utility:.3f} is below min_score {limits.min_score}.")
        return None


def _refuse_text(reflection: Reflection, pages: ShownText | None, scaffold: Scaffold) -> Refusal | None:
    for part, text in (
        ("rubrics block", reflection.rubrics),
        ("takeaways block", reflection.takeaways),
        ("question", reflection.question),
    ):
        question = text if part == "question" else reflection.question
        kind: Kind = "question" if part == "question" else "lesson"
        fault = find_fault(text, kind, shown=pages, question=question, scaffold=scaffold)
        if fault is not None:
            return Refusal(fault.code, f"the {part} {fault.sentence}: {fault.shown}.")
    copied = pages.find_copy(f"{reflection.rubrics}\n{reflection.takeaways}") if pages is not None else None
    return Refusal("copied", f"it repeats a page word for word: {copied[:60]!a}.") if copied is not None else None
