"""Does a policy read? It answers held-out questions, and what it says is compared with what it was shown.

    python -m research.reading_test MODEL [--seed 0] [--worlds 1] [--split test] [--json FILE]

MODEL is a folder, or `tiny` for the shipped policy. It attempts all questions of a split, greedily and at temperature
1, in the worlds of `--seed` and after. The test looks at each statement about a fact that stands in the model's
context: was the value copied, and does a snippet that the statement cites hold it? The results are split by number of
snippets, look-alikes and length.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rubricem_agent.learn.held_out import answer_held_out, mean_quality
from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
from rubricem_agent.prompting import AgentPrompt
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.trajectory import AnswerFormat, Origin
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.names import SPLITS, Split
from rubricem_env.world.needs import Need
from rubricem_env.world.offline import query_of
from rubricem_env.world.questions import Question
from rubricem_records.rollouts.rollouts import Rollout
from trainers.settings import run_command

TURN_TOKENS = 400
ROWS = 16
"""Episodes at once."""
SYSTEM = "Search, then answer."


def score_attempts(attempts: Sequence[tuple[Question, Rollout]]) -> dict[str, float]:
    """Means over attempts by truth: the share that strict mode accepts, needs and conventions met, quality by stage."""
    parsed = [rollout.parsed for _, rollout in attempts]
    answers = [(question, rollout.parsed.answer or "") for question, rollout in attempts]
    qualities = mean_quality([question for question, _ in attempts], parsed)
    return {
        "attempts": len(attempts),
        "valid": _mean([not trajectory.rejections for trajectory in parsed]),
        "needs_met": _mean(
            [need.is_met_by(answer) for question, answer in answers for need in _required_needs(question)]
        ),
        "conventions_met": _mean(
            [duty.is_met_by(answer) for question, answer in answers for duty in question.truth.implicit_needs]
        ),
        **{stage: round(quality, 4) for stage, quality in qualities.items()},
        "policy_tokens": _mean([rollout.usage.output_tokens for _, rollout in attempts]),
    }


def _required_needs(question: Question) -> Sequence[Need]:
    needs = question.truth.needs
    return needs[-1:] if question.answer_format is AnswerFormat.EXACT else needs


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4) if values else 0.0


class Statement(NamedTuple):
    """What an attempt says about a fact that stands in its context."""

    is_copied: bool
    """With a value that a snippet has for it."""
    is_sourced: bool | None
    """Whether a snippet that is named with it holds the sentence; None where no snippet is named."""
    snippets: int
    """Shown so far in the attempt, as are the others."""
    rivals: int
    """Other values of the attribute, of other entities."""
    length: int
    """In characters."""


_SNIPPET = re.compile(r'<snippet id="(S_\d+)">[^\n]*\n(.*?)</snippet>', re.DOTALL)
_FACT = re.compile(r"([A-Z][a-z]+ [A-Z][a-z]+) has ((?:old )?[a-z]+) ([^.<>]+)\.")
_NAMED = re.compile(
    r'(?:(S_\d+): |<cite id="(S_\d+)">)?([A-Z][a-z]+ [A-Z][a-z]+) has ((?:old )?[a-z]+) ([^.<>]+)\.(?: \((S_\d+)\))?'
)


def statements(parsed: ParsedTrajectory) -> Iterator[Statement]:
    """Every statement of an attempt, in evaluations, review and answer."""
    shown: dict[str, str] = {}
    values: dict[tuple[str, str], set[str]] = {}
    length = 0
    for segment in parsed.trajectory.segments:
        length += len(segment.text)
        if segment.origin is Origin.TOOL:
            shown |= dict(_SNIPPET.findall(segment.text))
            for name, attribute, value in _FACT.findall(segment.text):
                values.setdefault((name, attribute), set()).add(value)
        elif segment.origin is Origin.POLICY:
            for before, cited, name, attribute, value, after in _NAMED.findall(segment.text):
                plain = attribute.removeprefix("old ")
                if (name, plain) not in values:
                    continue
                source = before or cited or after
                said = f"{name} has {plain} {value}."
                others = (these for (other, of), these in values.items() if of == plain and other != name)
                yield Statement(
                    value in values[name, plain],
                    said in shown.get(source, "") if source else None,
                    len(shown),
                    len(set().union(*others)),
                    length,
                )


BANDS: Mapping[str, tuple[int, ...]] = {
    "snippets": (3, 6, 9, 100),
    "rivals": (0, 3, 6, 100),
    "length": (1500, 2500, 3500, 10**6),
}
"""Upper ends of the bands."""


def by_band(said: Sequence[Statement]) -> dict[str, dict[str, float]]:
    """The share of values copied and of sources right, whole and by band."""
    groups = {"all": list(said)}
    for field, ends in BANDS.items():
        for low, high in zip((-1, *ends), ends, strict=False):
            band = f"{field} {low + 1} to {high}" if high != ends[-1] else f"{field} over {low}"
            groups[band] = [each for each in said if low < getattr(each, field) <= high]
    return {
        band: {
            "statements": len(group),
            "copied": _mean([each.is_copied for each in group]),
            "sourced": _mean([each.is_sourced for each in group if each.is_sourced is not None]),
        }
        for band, group in groups.items()
        if group
    }


def answer_worlds(
    folder: Path,
    worlds: Sequence[int],
    split: Split,
    *,
    temperature: float,
    system: str = SYSTEM,
    questions: int | None = None,
) -> list[tuple[Question, Rollout]]:
    """A policy's attempts at all questions of the split in these worlds, or at so many of each."""
    policy = LocalPolicy(load_model(folder), load_tokenizer(folder), rows=ROWS, draft_tokens=3)

    async def attempt() -> list[tuple[Question, Rollout]]:
        made: list[tuple[Question, Rollout]] = []
        async with aclosing(policy):
            for number in worlds:
                world = Almanac.from_seed(number)
                held_out = world.questions_of(split)[:questions]
                rollouts = await answer_held_out(
                    policy,
                    [query_of(question) for question in held_out],
                    prompt=AgentPrompt(system, ""),
                    toolbox=offline_toolbox(Corpus(world.documents)),
                    limits=EpisodeLimits(),
                    max_turn_tokens=TURN_TOKENS,
                    seed=number,
                    temperature=temperature,
                )
                for failure in (rollout.failure for rollout in rollouts if rollout.failure):
                    raise ModelError(failure)
                made += zip(held_out, rollouts, strict=True)
        return made

    return asyncio.run(attempt())


def evaluate_reading(attempts: Sequence[tuple[Question, Rollout]]) -> dict[str, object]:
    """Scores of the attempts, and their statements by band."""
    said = [statement for _, rollout in attempts for statement in statements(rollout.parsed)]
    return {**score_attempts(attempts), "reading": by_band(said)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Test a model and print its scores. A user error gives exit code 2 and one sentence on stderr."""
    parser = argparse.ArgumentParser(prog="python -m research.reading_test", description="Does it read?")
    parser.add_argument("model", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the first world; 0 is the shipped one")
    parser.add_argument("--worlds", type=int, default=1)
    parser.add_argument("--split", choices=SPLITS, default="test")
    parser.add_argument("--questions", type=int, help="of each world; all of the split unless given")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)

    def test() -> None:
        worlds = range(chosen.seed, chosen.seed + chosen.worlds)
        results = []
        for warmth in (0.0, 1.0):
            made = answer_worlds(chosen.model, worlds, chosen.split, temperature=warmth, questions=chosen.questions)
            results.append({"temperature": warmth, **evaluate_reading(made)})
        text = json.dumps(results, indent=1)
        sys.stdout.write(f"{text}\n")
        if chosen.json:
            chosen.json.write_text(f"{text}\n", encoding="utf-8")

    return run_command("reading_test", test)


if __name__ == "__main__":
    sys.exit(main())
