"""The searches by which a scripted expert meets the needs of a question, and what each has brought."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rubricem_env.tools.base import GOOGLE_SEARCH, SNIPPET_SEARCH
from rubricem_env.world.faults import Slips
from rubricem_env.world.questions import Question
from rubricem_env.world.truth import ImplicitNeed, Need

Target = Need | ImplicitNeed
MAX_SEARCHES = 9
"""One less than the rounds of data generation: the last round answers."""
RETRY_LIMIT = "10"
_SNIPPET = re.compile(r'<snippet id="(S_\d+)">(?:[^\n]*?https://almanac\.example/(\w+)\n)?(.*?)</snippet>', re.DOTALL)


class Errand(NamedTuple):
    """One search, and the needs that it is to meet."""

    tool: str
    query: str
    targets: tuple[Target, ...]
    limit: str = ""
    """Asked of the tool where it is not empty: a second try looks further down."""


class Shown(NamedTuple):
    """A snippet that a tool has shown."""

    snippet_id: str
    document_id: str
    text: str


class Progress(NamedTuple):
    """Where an expert stands after its observations."""

    asked: tuple[Errand, ...]
    ahead: tuple[Errand, ...]
    shown: tuple[Shown, ...]
    """Of all observations, in order."""
    num_new: int
    """How many of them came with the last one."""

    def source_of(self, document_ids: Sequence[str]) -> Shown | None:
        """The first snippet shown from any of the documents."""
        return next((shown for shown in self.shown if shown.document_id in document_ids), None)


def plan_errands(question: Question, slips: Slips) -> tuple[Errand, ...]:
    """One search for each subject, one for each step of a chain, then the convention and what it asks for."""
    needs = [need for need in wanted_needs(question, slips) if need.kind != "verdict" and need.id != slips.unfounded]
    errands = [*_direct(needs), *(Errand(GOOGLE_SEARCH, n.search_terms, (n,)) for n in needs if n.depends_on)]
    if slips.repeats_query:
        errands = [*errands[:1], *errands]
    duties = wanted_duties(question, slips)
    if duties:
        closings = tuple(duty for duty in duties if duty.kind == "closing")
        errands.append(Errand(SNIPPET_SEARCH, duties[0].convention_search_terms, closings))
        errands += [Errand(SNIPPET_SEARCH, duty.search_terms, (duty,)) for duty in duties if duty.kind == "stated"]
    # Even who means to invent the answer must search first: for something else.
    return tuple(errands) or (Errand(SNIPPET_SEARCH, f"reporting convention {question.domain}", ()),)


def wanted_needs(question: Question, slips: Slips) -> tuple[Need, ...]:
    """The needs that the expert means to meet."""
    return tuple(need for need in question.truth.needs if need.id != slips.skipped)


def wanted_duties(question: Question, slips: Slips) -> tuple[ImplicitNeed, ...]:
    """The unspoken needs that it means to meet."""
    return () if slips.misses_convention else question.truth.implicit_needs


def follow(errands: Sequence[Errand], observations: Sequence[str]) -> Progress:
    """Go through the errands with what the tools have answered.

    What a search has not brought is searched for once more; what cannot be known to be searched for is given up.
    """
    ahead, asked, shown, num_new = list(errands), list[Errand](), list[Shown](), 0
    for observation in observations:
        errand = ahead.pop(0)
        asked.append(errand)
        new = read_snippets(observation)
        shown, num_new = shown + new, len(new)
        pages = {snippet.document_id for snippet in shown}
        lacking = [target for target in errand.targets if pages.isdisjoint(target.document_ids)]
        if errand.limit:
            ahead = [later for later in ahead if _is_within_reach(later, lacking)]
        else:
            ahead = [Errand(SNIPPET_SEARCH, target.search_terms, (target,), RETRY_LIMIT) for target in lacking] + ahead
        ahead = ahead[: MAX_SEARCHES - len(asked)]
    return Progress(tuple(asked), tuple(ahead), tuple(shown), num_new)


def read_snippets(observation: str) -> list[Shown]:
    """The snippets of an observation as the policy reads it."""
    return [Shown(*found) for found in _SNIPPET.findall(observation)]


def _direct(needs: Sequence[Need]) -> Iterator[Errand]:
    """One search for each subject, by its name and all the words that are asked of it."""
    subjects = dict.fromkeys(need.subject_id for need in needs if not need.depends_on)
    for subject in subjects:
        targets = tuple(need for need in needs if need.subject_id == subject and not need.depends_on)
        words = dict.fromkeys(word for target in targets for word in target.search_terms.split())
        yield Errand(GOOGLE_SEARCH, " ".join(words), targets)


def _is_within_reach(errand: Errand, missed: Sequence[Target]) -> bool:
    """Whether nothing that the errand depends on was searched for in vain."""
    lost = {target.id for target in missed}
    return lost.isdisjoint(name for target in errand.targets if isinstance(target, Need) for name in target.depends_on)
