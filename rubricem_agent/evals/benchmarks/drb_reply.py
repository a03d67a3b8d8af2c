"""The scores in a RACE judge's reply; the official parse rescues damaged JSON.

Its order of the attempts matters where a reply could be read in two ways: the whole text, the json fence, the whole
text of any kind, the first balanced braces, the first brace to the last, and at the end criteria and scores gathered by
pattern.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, JsonValue

from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS, TaskCriteria
from rubricem_agent.evals.reply_parsing import Unparsed, read_form
from rubricem_env.domain.base import Frozen

_FENCED = re.compile(r"```json(.*?)```", re.DOTALL)


_CRITERION = re.compile(r'"criterion"\s*:\s*"([^"]+)"')


# No sign in front of the digits: a negative score is not seen and the later ones move up, as officially.
_TARGET_SCORE = re.compile(r'"article_1_score"\s*:\s*(\d+\.?\d*)')


_REFERENCE_SCORE = re.compile(r'"article_2_score"\s*:\s*(\d+\.?\d*)')


_Score = Annotated[float, Field(ge=0, le=10)]


class _ScoredCriterion(Frozen):
    criterion: str
    analysis: str = ""
    article_1_score: _Score
    article_2_score: _Score


class _Comparison(Frozen):
    comprehensiveness: list[_ScoredCriterion]
    insight: list[_ScoredCriterion]
    instruction_following: list[_ScoredCriterion]
    readability: list[_ScoredCriterion]


def read_scores(reply: str, *, criteria: TaskCriteria) -> dict[str, JsonValue] | Unparsed:
    """A reply that is one JSON object of the form that was asked for, with two scores from 0 to 10 for each criterion.

    Every criterion of the task is named once in its dimension; case, spacing and a full stop do not count.
    """
    said = read_form(reply, _Comparison)
    if isinstance(said, Unparsed):
        return said
    for dimension, entries in said:
        wanted = Counter(_words(item.criterion) for item in criteria.of(dimension))
        if Counter(_words(entry.criterion) for entry in entries) != wanted:
            return Unparsed(f"{dimension} does not name each of its criteria once")
    return said.model_dump(exclude_unset=True)


def _words(criterion: str) -> str:
    return " ".join(criterion.casefold().split()).rstrip(".\u3002")


def parse_scores(reply: str) -> JsonValue | Unparsed:
    """By the official parse, the judge's JSON, of whatever kind, if every dimension is in it.

    It is `Unparsed` where the official scorer asks again.
    """
    scores = rescue_json(reply)
    if isinstance(scores, Unparsed):
        return scores
    if not isinstance(scores, dict | list | str):
        return Unparsed("the reply holds no object")
    missing = [dimension for dimension in DIMENSIONS if dimension not in scores]
    return Unparsed(f"dimensions missing: {', '.join(missing)}") if missing else scores


def rescue_json(text: str) -> JsonValue | Unparsed:
    """The first reading of the text that is JSON.

    Braces nested too deeply for Python, and numbers too long for it, end the official search at once.
    """
    for candidate in _candidates(text):
        try:
            parsed: JsonValue = json.loads(candidate)
        except json.JSONDecodeError:
            continue
        except (RecursionError, ValueError) as error:
            return Unparsed(f"the official parse stops: {error}")
        return parsed
    return _gather_by_pattern(text)


def _candidates(text: str) -> Iterator[str]:
    whole = text.strip()
    if whole.startswith("{") and whole.endswith("}"):
        yield whole
    yield from (content.strip() for content in _FENCED.findall(text)[:1])
    yield whole
    yield from _braced(text)


def _braced(text: str) -> Iterator[str]:
    first = text.find("{")
    last = text.rfind("}")
    if first == -1:
        return
    depth = 0
    for position in range(first, len(text)):
        # Braces inside strings count too, as officially; the next reading makes up for it.
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            yield text[first : position + 1]
            break
    if last > first:
        yield text[first : last + 1]


def _gather_by_pattern(text: str) -> JsonValue | Unparsed:
    if not all(word in text for word in ("comprehensiveness", "article_1_score", "article_2_score")):
        return Unparsed("no JSON in the reply")
    gathered: dict[str, JsonValue] = {
        dimension: _gather_entries(_section(text, dimension)) for dimension in DIMENSIONS if dimension in text
    }
    return gathered if any(gathered.values()) else Unparsed("no scores in the reply")


def _section(text: str, dimension: str) -> str:
    start = _position(text, dimension, after=0, bare_after=0)
    others = (other for other in DIMENSIONS if other != dimension)
    starts = [_position(text, other, after=start, bare_after=start + len(dimension)) for other in others]
    return text[start : min((position for position in starts if position != -1), default=len(text))]


def _position(text: str, dimension: str, *, after: int, bare_after: int) -> int:
    for quoted in (f'"{dimension}"', f"'{dimension}'"):
        position = text.find(quoted, after)
        if position != -1:
            return position
    return text.find(dimension, bare_after)


def _gather_entries(section: str) -> list[JsonValue]:
    criteria = _CRITERION.findall(section)
    targets = _TARGET_SCORE.findall(section)
    references = _REFERENCE_SCORE.findall(section)
    # The shortest of the three lists decides: entries are paired by position.
    return [
        {"criterion": criterion, "article_1_score": float(target), "article_2_score": float(reference)}
        for criterion, target, reference in zip(criteria, targets, references, strict=False)
    ]
