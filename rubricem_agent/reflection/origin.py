"""Traces the words of a reflection to their authors: the question, the policy in the attempt, or pages alone."""

import hashlib
from string import punctuation

from rubricem_env.domain.trajectory import Origin
from rubricem_env.scaffold.folding import fold_words
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_records.bank.bank_items import LessonOrigin

_FEWEST_LETTERS = 4
"""A shorter word is no content word, unless it has a digit."""
_MOST_PAGE_WORDS = 32
_STOP_WORDS = frozenset(
    fold_words(
        "about above after again against also always among another because been before being below between both "
        "could does doing done down during each either else ever every from further have having here into itself "
        "just kept like made make many more most much must never none only onto other others over same should since "
        "some such than that their them then there these they this those through till under until upon very were "
        "what when where whether which while whom whose will with within without would your"
    )
)


def trace_origin(parsed: ParsedTrajectory, text: str, *, known: str, attempt: int | None = None) -> LessonOrigin:
    """The origin of a reflection on an attempt, with its words counted by who brought them.

    `known` is text that the policy was given to write with, such as the reflection's prompt; its words are nobody's.
    """
    trajectory = parsed.trajectory
    words = _content_words(text)
    question = words.keys() & _all_words(trajectory.question)
    written = (words.keys() & _all_words(parsed.policy_text)) - question
    shown = {
        word for segment in trajectory.segments if segment.origin is Origin.TOOL for word in _all_words(segment.text)
    }
    paged = (words.keys() & shown) - question - written - _all_words(known)
    return LessonOrigin(
        attempt=attempt,
        fingerprint=hashlib.sha256(parsed.policy_text.encode("utf-8", "replace")).hexdigest()[:16],
        words=len(words),
        from_question=len(question),
        from_policy=len(written),
        from_pages=len(paged),
        page_words=tuple(said for word, said in words.items() if word in paged)[:_MOST_PAGE_WORDS],
    )


def _all_words(text: str) -> set[str]:
    return set(fold_words(text))


def _content_words(text: str) -> dict[str, str]:
    """The content words of a text in their order: each as it is compared, and as it stands there first."""
    words: dict[str, str] = {}
    for said in text.split():
        for word in fold_words(said):
            is_content = len(word) >= _FEWEST_LETTERS or any(char.isdigit() for char in said)
            if is_content and word not in _STOP_WORDS:
                words.setdefault(word, said.strip(punctuation).lower())
    return words
