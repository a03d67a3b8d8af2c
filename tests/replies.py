"""Replies of search services and of judge models, in the shapes of their APIs."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from rubricem_env.judge.model.templates import PROPOSE, REFLECT
from rubricem_env.llm.chat import ChatRequest

_DELIMITED_BLOCK = re.compile(
    r"^<<<BEGIN (?P<label>[A-Z]+) (?P<nonce>[0-9a-f]{16})>>>\n(?P<body>.*?)\n<<<END (?P=label) (?P=nonce)>>>$",
    re.M | re.S,
)


def grounded_reply(
    answer: str, sources: tuple[tuple[str, str], ...] = (), spans: tuple[tuple[str, int], ...] = ()
) -> dict[str, Any]:
    """A reply of Gemini with grounding: sources are (title, URL); spans are (words, index of their source)."""
    encoded = answer.encode()
    supports = [
        {
            "segment": {
                "startIndex": encoded.index(words.encode()),
                "endIndex": encoded.index(words.encode()) + len(words.encode()),
                "text": words,
            },
            "groundingChunkIndices": [index],
        }
        for words, index in spans
    ]
    chunks = [{"web": {"uri": url, "title": title}} for title, url in sources]
    candidate = {
        "content": {"role": "model", "parts": [{"text": answer}]},
        "finishReason": "STOP",
        "groundingMetadata": {"groundingChunks": chunks, "groundingSupports": supports},
    }
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 20, "totalTokenCount": 30}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3.8-flash"}


def scholar_reply(*texts: str) -> dict[str, Any]:
    """A reply of Semantic Scholar's snippet endpoint."""
    hits = [
        {
            "snippet": {"text": text, "snippetKind": "body"},
            "score": 1.0,
            "paper": {"corpusId": str(n), "title": f"Paper {n}"},
        }
        for n, text in enumerate(texts, 1)
    ]
    return {"data": hits, "retrievalVersion": "test"}


def read_fenced(
    score_of: Callable[[Mapping[str, Any], Mapping[str, Any]], int],
    *,
    draft: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
) -> Callable[[ChatRequest], str]:
    """The answer function of a scripted model that takes delimited content for data and nothing else for content.

    `score_of` is given a criterion and the blocks, `draft` the blocks of a contrast; both see parsed JSON.
    """

    def answer(request: ChatRequest) -> str:
        blocks = read_blocks(request.prompt)
        if request.purpose == PROPOSE:
            return json.dumps(draft(blocks) if draft else empty_proposal())
        if request.purpose == REFLECT:
            return json.dumps({"scores": [_fair_score(c["index"]) for c in blocks["CANDIDATES"]]})
        scores = [
            {"index": row["index"], "justification": "read behind the fence", "score": score_of(row, blocks)}
            for row in blocks["CRITERIA"]
        ]
        return json.dumps({"scores": scores})

    return answer


def empty_proposal() -> dict[str, Any]:
    """A proposal in the wire's shape that proposes nothing."""
    return {f"stage_{number}": {"positive_rubrics": [], "negative_rubrics": []} for number in (1, 2, 3, 4)}


def _fair_score(index: int) -> dict[str, Any]:
    dimensions = {"diagnostic_accuracy": 0.5, "specificity": 0.5, "scope_and_balance": 0.5}
    return {"index": index, "justification": "scripted", **dimensions}


def read_blocks(prompt: str) -> dict[str, Any]:
    """The blocks of a prompt by label, for scripted judges."""
    return {found["label"]: json.loads(found["body"]) for found in _DELIMITED_BLOCK.finditer(prompt)}
