"""2WikiMultihopQA evidence: (subject, relation, object) triples, any alias of an entity being as good as its name."""

import itertools
import string
from collections.abc import Mapping, Sequence

from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.twowiki import AnswerScore, harmonic_mean
from rubricem_env.domain.base import Text

EvidenceTriple = tuple[Text, Text, Text]

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_evidence(text: str) -> str:
    """Lower case, no ASCII punctuation, single spaces. Articles stay, unlike in answers."""
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def alternatives(
    evidences: Sequence[EvidenceTriple], ids: Sequence[EvidenceTriple], *, aliases: Mapping[str, frozenset[str]]
) -> list[set[tuple[str, ...]]]:
    """For each gold triple every way to write it, normalised.

    Ids may be absent altogether; otherwise there must be one per triple with the same relation, or the official
    assertion fails.
    """
    if ids and len(ids) != len(evidences):
        raise ScoringError("AssertionError", f"{len(ids)} evidence ids for {len(evidences)} evidences")
    written: list[set[tuple[str, ...]]] = []
    for position, (subject, relation, target) in enumerate(evidences):
        subjects, targets = {subject}, {target}
        if ids:
            subject_id, relation_id, target_id = ids[position]
            if relation_id != relation:
                raise ScoringError("AssertionError", f"relation {relation!r} has the id {relation_id!r}")
            subjects |= aliases.get(subject_id, frozenset())
            targets |= aliases.get(target_id, frozenset())
        pairs = itertools.product(subjects, targets)
        written.append({tuple(map(normalize_evidence, (one, relation, other))) for one, other in pairs})
    return written


def score_evidence(predicted: Sequence[Sequence[str]], gold: Sequence[set[tuple[str, ...]]]) -> AnswerScore:
    """Predicted triples that match any gold triple, over the predicted and over the gold ones.

    Two spellings of one gold triple both count, so recall can exceed 1, as officially.
    """
    guesses = {tuple(map(normalize_evidence, triple)) for triple in predicted}
    hits = sum(any(guess in ways for ways in gold) for guess in guesses)
    precision = hits / len(guesses) if guesses else 0.0
    recall = hits / len(gold) if gold else 0.0
    exact = float(hits == len(guesses) == len(gold))
    return AnswerScore(exact, harmonic_mean(precision, recall), precision, recall)
