"""A rollout as a Markdown report: the answer with its citations as numbered links, its sources, and the searches."""

import re
from collections.abc import Mapping

from rubricem_env.domain.trajectory import Ending
from rubricem_env.scaffold.citations import find_citations
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.untrusted import TERMINAL_CONTROL
from rubricem_records.rollouts.snippet_sources import SnippetSource, shown_sources

_MARKDOWN = re.compile(r"([\\`*_\[\]<>#|!])")
_AUTOLINK = re.compile(r"(?:[a-z]:(?=//)|www\.|@(?=\w))", re.IGNORECASE)
"""What some readers of Markdown make a link of, without any mark around it."""


def render_report(parsed: ParsedTrajectory) -> str:
    """Markdown: the question, the answer, its sources in the order of first use, the searches."""
    sources = shown_sources(parsed.trajectory)
    numbers = {snippet_id: number for number, snippet_id in enumerate(parsed.citations.known, 1)}
    parts = [f"# {_escaped(parsed.trajectory.question)}", _body(parsed, numbers, sources=sources)]
    if numbers:
        listed = "\n".join(f"{number}. {_listed(sources.get(key))} ({key})" for key, number in numbers.items())
        parts.append(f"## Sources\n\n{listed}")
    if parsed.citations.unknown:
        invented = ", ".join(_escaped(key) for key in parsed.citations.unknown)
        parts.append(f"Cited, but never shown by a tool in this episode: {invented}.")
    parts.append(f"## How it was found\n\n{_searches(parsed)}")
    return "\n\n".join(parts) + "\n"


def linked_answer(answer: str, numbers: Mapping[str, int], *, sources: Mapping[str, SnippetSource]) -> str:
    """The answer with each citation as its claim and numbered links; unknown ids become a question mark."""
    pieces = []
    at = 0
    for citation in find_citations(answer):
        links = "".join(_link(key, numbers, sources=sources) for key in citation.ids)
        pieces += [answer[at : citation.start], citation.claim, f" {links}" if links else ""]
        at = citation.end
    return TERMINAL_CONTROL.sub("", "".join([*pieces, answer[at:]]))


def explain_ending(ending: Ending | None) -> str:
    """Why there is no answer, in one sentence with the way out; nothing for an answered episode."""
    return {
        Ending.CALL_BUDGET: (
            "The policy used all its searches and did not answer. Ask more narrowly, or use a stronger model."
        ),
        Ending.TURN_BUDGET: (
            "The policy used all its turns and did not answer. Ask more narrowly, or use a stronger model."
        ),
        Ending.TOKEN_BUDGET: (
            "The policy ran out of room, its context or its token budget, before it answered. Serve it with a longer "
            "context, or ask more narrowly."
        ),
        Ending.STALLED: (
            "The policy ended two turns in a row without closing a tool call or an answer. Use a model that follows "
            "the prompt; what it wrote is in the trajectory."
        ),
        Ending.ABANDONED: "The episode was aborted.",
    }.get(ending or Ending.ABANDONED, "")


def _body(parsed: ParsedTrajectory, numbers: Mapping[str, int], *, sources: Mapping[str, SnippetSource]) -> str:
    if parsed.answer is None:
        return f"There is no answer. {explain_ending(parsed.trajectory.ending)}"
    answer = linked_answer(parsed.answer, numbers, sources=sources)
    return answer if parsed.is_complete else f"{answer}\n\n(The answer is truncated here.)"


def _link(snippet_id: str, numbers: Mapping[str, int], *, sources: Mapping[str, SnippetSource]) -> str:
    number = numbers.get(snippet_id)
    if number is None:
        return "[?]"
    url = sources[snippet_id].url if snippet_id in sources else ""
    return f"[\\[{number}\\]]({url})" if url else f"[{number}]"


def _listed(source: SnippetSource | None) -> str:
    title, url = source or ("", "")
    shown = _escaped(title) or url
    if not shown:
        return "a snippet without title or address"
    return f"[{shown}]({url})" if url else shown


def _searches(parsed: ParsedTrajectory) -> str:
    calls = [turn.call for turn in parsed.turns if turn.call is not None]
    lines = [f"- {_escaped(call.name)}: {_escaped(call.query)}" for call in calls]
    ending = parsed.trajectory.ending.value if parsed.trajectory.ending else "unknown"
    return "\n".join([f"{len(parsed.turns)} turns, {len(calls)} searches; ending: {ending}.", *lines])


def _escaped(text: str) -> str:
    escaped = _MARKDOWN.sub(r"\\\1", TERMINAL_CONTROL.sub("", " ".join(text.split())))
    return _AUTOLINK.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", escaped)
