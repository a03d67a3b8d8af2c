"""The searches of the scripted expert, and what they have shown."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rubricem_env.tools.spec import GOOGLE_SEARCH, SNIPPET_SEARCH
from rubricem_env.world.expert_faults import Slips
from rubricem_env.world.needs import ImplicitNeed, Need
from rubricem_env.world.questions import Question

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
    """The limit passed to the tool, if any: a second try looks further down."""

    @property
    def grounds(self) -> tuple[str, ...]:
        """The ids of the needs that must be met before it."""
        return tuple(name for target in self.targets if isinstance(target, Need) for name in target.depends_on)


class Shown(NamedTuple):
    """A snippet that a tool has shown."""

    snippet_id: str
    document_id: str
    text: str


class ExpertProgress(NamedTuple):
    """The searches ahead, and the snippets shown so far."""

    ahead: tuple[Errand, ...]
    shown: tuple[Shown, ...]
    """The snippets of all observations, in order."""
    new: tuple[Shown, ...]
    """The snippets of the last observation."""

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
    # An expert that invents its only value still searches first, for something else.
    return tuple(errands) or (Errand(SNIPPET_SEARCH, f"reporting convention {question.domain}", ()),)


def wanted_needs(question: Question, slips: Slips) -> tuple[Need, ...]:
    """The needs that the expert intends to meet."""
    return tuple(need for need in question.truth.needs if need.id != slips.skipped)


def wanted_duties(question: Question, slips: Slips) -> tuple[ImplicitNeed, ...]:
    """The unspoken needs that it intends to meet."""
    return () if slips.misses_convention else question.truth.implicit_needs


def follow(
    errands: Sequence[Errand], observations: Sequence[str], *, max_searches: int = MAX_SEARCHES
) -> ExpertProgress:
    """Go through the searches with the observations of the tools.

    A need without a source is searched for once more; searches that depend on a need without a source are given up.
    """
    ahead = list(errands)
    shown = list[Shown]()
    new = list[Shown]()
    for number, observation in enumerate(observations, 1):
        errand = ahead.pop(0)
        new = [Shown(*match) for match in _SNIPPET.findall(observation)]
        shown += new
        pages = {snippet.document_id for snippet in shown}
        lacking = [target for target in errand.targets if pages.isdisjoint(target.document_ids)]
        if errand.limit:
            lost = {target.id for target in lacking}
            ahead = [later for later in ahead if lost.isdisjoint(later.grounds)]
        else:
            ahead = [Errand(SNIPPET_SEARCH, target.search_terms, (target,), RETRY_LIMIT) for target in lacking] + ahead
        ahead = ahead[: max_searches - number]
    return ExpertProgress(tuple(ahead), tuple(shown), tuple(new))


def _direct(needs: Sequence[Need]) -> Iterator[Errand]:
    """One search for each subject, by its name and all the words that are asked of it."""
    subjects = dict.fromkeys(need.subject_id for need in needs if not need.depends_on)
    for subject in subjects:
        targets = tuple(need for need in needs if need.subject_id == subject and not need.depends_on)
        words = dict.fromkeys(word for target in targets for word in target.search_terms.split())
        yield Errand(GOOGLE_SEARCH, " ".join(words), targets)
