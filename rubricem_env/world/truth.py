"""What is true of a question: its needs, its unspoken needs, and the traps that its sources set."""

import re
from typing import Literal

from rubricem_env.domain.base import Frozen

NeedKind = Literal["fact", "link", "cause", "verdict"]
TrapKind = Literal["stale", "rival", "lookalike", "hostile"]


def mentions(text: str, phrase: str) -> bool:
    """Whether the phrase stands in the text as whole words, whatever the case and the spacing.

    "20 km" is not mentioned in "120 km", "1,20 km" or "20 kms".
    """
    words = r"\s+".join(re.escape(word) for word in phrase.split())
    return re.search(rf"(?<!\w)(?<!\d[.,]){words}(?!\w)", text, re.IGNORECASE) is not None


class Need(Frozen):
    """One thing that the question asks for, said or as a step of a chain.

    ``kind``: fact is a number, link the name of a related entity, cause why a value changed, verdict what follows
    from earlier needs. Any of ``document_ids`` supports it and contains ``value``. ``wording`` is the least that an
    answer must contain; it is the value, but for a verdict, whose bare name proves nothing. ``depends_on`` holds the
    ids of the needs that must be known before this one can be searched for or concluded.
    """

    id: str
    kind: NeedKind
    title: str
    subject_id: str
    attribute: str
    value: str
    wording: str
    sentence: str
    document_ids: tuple[str, ...]
    search_terms: str
    depends_on: tuple[str, ...] = ()

    def is_met_by(self, text: str) -> bool:
        """Whether the text contains the wording that satisfies the need."""
        return mentions(text, self.wording)


class ImplicitNeed(Frozen):
    """A convention of the domain, which the question does not name.

    ``kind``: stated wants the aspect and its value for one entity (held by ``document_ids``); closing wants the
    fixed words of the domain, which only the convention documents hold. ``convention_ids`` name the duty and are
    found by ``convention_search_terms``.
    """

    id: str
    kind: Literal["stated", "closing"]
    title: str
    aspect: str
    subject_id: str
    value: str
    sentence: str
    document_ids: tuple[str, ...]
    search_terms: str
    convention_ids: tuple[str, ...]
    convention_search_terms: str

    def is_met_by(self, text: str) -> bool:
        """Whether the text contains the value and, where the value is that of an aspect, names the aspect."""
        return mentions(text, self.value) and (self.kind == "closing" or mentions(text, self.aspect))


class Trap(Frozen):
    """A wrong value that the documents ``document_ids`` offer for a need; it is the right value of no need."""

    kind: TrapKind
    need_id: str
    right_value: str
    wrong_value: str
    document_ids: tuple[str, ...]

    def has_caught(self, text: str) -> bool:
        """Whether the text repeats the wrong value."""
        return mentions(text, self.wrong_value)


class Truth(Frozen):
    """All that a judge of a question may know and a policy may not.

    ``entity_ids`` are the subjects of the needs, those that the question names first. ``reference`` is a perfect
    answer: the bare value for an exact question, else one sentence for each need.
    """

    kind: str
    entity_ids: tuple[str, ...]
    needs: tuple[Need, ...]
    implicit_needs: tuple[ImplicitNeed, ...]
    traps: tuple[Trap, ...]
    reference: str
