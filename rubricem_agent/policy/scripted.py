"""Policies without a model: text by a function of what was read, for tests, demos, simulations and dry runs.

`QuotingResearcher` searches for the question and quotes the results. It demonstrates the scaffold and knows nothing.
"""

import re
from collections.abc import Callable
from typing import Protocol

from rubricem_agent.policy.base import Emission, Listener, Opening, TokenSegment, TurnWatch
from rubricem_env.env.view import View
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.untrusted import neutralize
from rubricem_env.tools.render import estimate_tokens
from rubricem_env.tools.spec import GOOGLE_SEARCH, SNIPPET_SEARCH
from rubricem_records.rollouts.sampling import Sampling

_WORD = re.compile(r"\s*\S+|\s+$")


class Writer(Protocol):
    """Writes the turns of one episode."""

    def emission(self, observation: str) -> str:
        """The next turn, after reading the observation; the first one is given the user message."""
        ...


class ScriptedPolicy:
    """Opens a writer for each episode."""

    def __init__(self, write: Callable[[Opening, int], Writer], *, name: str = "scripted") -> None:
        self._write = write
        self.name = name

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> "ScriptedConversation":
        """A conversation with a new writer; `sampling` has no effect."""
        return ScriptedConversation(self._write(opening, seed), opening)

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def aclose(self) -> None:
        return None


class ScriptedConversation:
    """One writer's episode, in text."""

    pieces: tuple[TokenSegment, ...] = ()

    def __init__(self, writer: Writer, opening: Opening) -> None:
        self._writer = writer
        self._unread = opening.user
        self._scaffold = opening.scaffold

    async def emit(self, *, max_tokens: int, listener: Listener) -> Emission:
        """The writer's whole text: `max_tokens` has no effect, and the episode enforces its limits."""
        text = self._writer.emission(self._unread)
        self._unread = ""
        for word in _WORD.findall(text):
            listener.wrote(word)
        end = TurnWatch(Listener(), self._scaffold).write(text) or "stopped"
        return Emission(text, end, Usage(calls=1, output_tokens=estimate_tokens(text)))

    def observe(self, text: str) -> None:
        self._unread += text

    def fold(self, view: View) -> None:
        """A writer remembers what it read, so it reads the observation alone."""
        self.observe(view.turns[-1].observation)

    def close(self) -> None:
        return None


_SNIPPET = re.compile(r'<snippet id="(S_\d+)">(.*?)</snippet>', re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_QUOTED_WORD = re.compile(r"\w{3,}")
MAX_QUOTES = 4
_PLAN = (
    "<think>No model is at work: I look up the question's own words and quote what comes back.</think>"
    "<structured_plan><deep_analysis>Explicit need: what sources say on the question. Complexity: not assessed."
    "</deep_analysis><rubric>Knowledge: passages on the question, each with its source. Avoid: any claim that no "
    "passage bears out.</rubric><research_plan>1. Search the web. 2. Search papers. 3. Quote.</research_plan>"
    "</structured_plan>"
)
_REVIEW = (
    "<review><rubric_review>{} passages with sources; nothing is claimed beyond them."
    "</rubric_review><writing_plan>One quotation after the other.</writing_plan></review>"
)


class QuotingResearcher:
    """Plans, searches the web and then the papers for the question's own words, and quotes each source once."""

    def __init__(self, question: str) -> None:
        self._question = neutralize(" ".join(question.split()))
        self._quotes: dict[str, str] = {}
        self._turn = 0

    def emission(self, observation: str) -> str:
        """The next turn of three."""
        self._turn += 1
        if self._turn == 1:
            return _PLAN + _call(GOOGLE_SEARCH, self._question)
        self._read(observation)
        state = f"{len(self._quotes)} passages so far."
        weighed = f"<think>{state}</think><state_evaluation>{state} "
        if self._turn == 2:
            return f"{weighed}The papers may have more.</state_evaluation>{_call(SNIPPET_SEARCH, self._question)}"
        review = _REVIEW.format(len(self._quotes))
        return f"{weighed}This is all there is to quote.</state_evaluation>{review}{self._answer()}"

    def _read(self, observation: str) -> None:
        stems = _stems(self._question)
        for snippet_id, body in _SNIPPET.findall(observation):
            text = body.partition("\n")[2] or body
            sentences = _SENTENCE.split(" ".join(text.split()))
            quote = max(sentences, key=lambda sentence: len(stems & _stems(sentence)))
            if quote and quote not in self._quotes.values():
                self._quotes[snippet_id] = quote

    def _answer(self) -> str:
        if not self._quotes:
            return "<answer>Nothing was found on this question.</answer>"
        shown = list(self._quotes.items())[:MAX_QUOTES]
        return "<answer>" + "\n\n".join(f'<cite id="{key}">{quote}</cite>' for key, quote in shown) + "</answer>"


def _stems(text: str) -> frozenset[str]:
    """Words by their first three letters, so that wide matches width."""
    return frozenset(word[:3].casefold() for word in _QUOTED_WORD.findall(text))


def _call(tool: str, query: str) -> str:
    return f'<call_tool name="{tool}">{query}</call_tool>'
