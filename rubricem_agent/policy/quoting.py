"""A researcher without a model: searches for the question and quotes what it finds. It shows the way, and knows nothing."""

import re

from rubricem_env.scaffold.neutralize import neutralize
from rubricem_env.tools.base import GOOGLE_SEARCH, SNIPPET_SEARCH

_SNIPPET = re.compile(r'<snippet id="(S_\d+)">(.*?)</snippet>', re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"\w{3,}")
MAX_QUOTES = 4


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
            return self._plan() + _call(GOOGLE_SEARCH, self._question)
        self._read(observation)
        state = f"{len(self._quotes)} passages so far."
        weighed = f"<think>{state}</think><state_evaluation>{state} "
        if self._turn == 2:
            return f"{weighed}The papers may have more.</state_evaluation>{_call(SNIPPET_SEARCH, self._question)}"
        return f"{weighed}This is all there is to quote.</state_evaluation>{self._review()}{self._answer()}"

    def _plan(self) -> str:
        return (
            "<think>No model is at work: I look up the question's own words and quote what comes back.</think>"
            "<structured_plan><deep_analysis>Explicit need: what sources say on the question. Complexity: not assessed."
            "</deep_analysis><rubric>Knowledge: passages on the question, each with its source. Avoid: any claim that no "
            "passage bears out.</rubric><research_plan>1. Search the web. 2. Search papers. 3. Quote.</research_plan>"
            "</structured_plan>"
        )

    def _read(self, observation: str) -> None:
        for snippet_id, body in _SNIPPET.findall(observation):
            text = body.partition("\n")[2] or body
            quote = max(_SENTENCE.split(" ".join(text.split())), key=self._closeness)
            if quote and quote not in self._quotes.values():
                self._quotes[snippet_id] = quote

    def _closeness(self, sentence: str) -> int:
        """How many word stems a sentence shares with the question."""
        return len(_stems(self._question) & _stems(sentence))

    def _review(self) -> str:
        return (
            f"<review><rubric_review>{len(self._quotes)} passages with sources; nothing is claimed beyond them."
            "</rubric_review><writing_plan>One quotation after the other.</writing_plan></review>"
        )

    def _answer(self) -> str:
        if not self._quotes:
            return "<answer>Nothing was found on this question.</answer>"
        shown = list(self._quotes.items())[:MAX_QUOTES]
        return "<answer>" + "\n\n".join(f'<cite id="{key}">{quote}</cite>' for key, quote in shown) + "</answer>"


def _stems(text: str) -> frozenset[str]:
    """Words by their first three letters: wide is like width."""
    return frozenset(word[:3].casefold() for word in _WORD.findall(text))


def _call(tool: str, query: str) -> str:
    return f'<call_tool name="{tool}">{query}</call_tool>'
