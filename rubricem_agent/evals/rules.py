"""The protocol that a mode fixes for a benchmark. Every number is reported together with its mode.

official   the benchmark's own scorer
drtulu     DR Tulu's protocol, which the paper says that it shares
leaderboard  what the benchmark's maintainers judge with today, where that is another model than the first one
paper      the choices of the paper's evaluation, and DR Tulu's where the paper says nothing: see `paper_tables`
strict     as official, but every failure counts as the worst case
lenient    as official, but replies are read by the official scorer's own parse, quirks included

In all but the last a reply is read by `reply_parsing`: it holds one verdict in the form that was asked for, or none.
"""

from rubricem_records.evaluations.rules import Rules


def official_rules(judge: str, **changes: object) -> Rules:
    """The rules of the official mode; `changes` are fields that differ from the defaults."""
    return Rules.model_validate({"mode": "official", "judge": judge, **changes})


def drtulu_rules(official: Rules, **changes: object) -> Rules:
    """The official rules as DR Tulu changes them for every benchmark; `changes` are those of one benchmark."""
    shared = {
        "mode": "drtulu",
        "follows": "drtulu",
        "temperature": 0.0,
        "extraction": "predecessor",
        "citations": "kept",
        "sampling": "drtulu",
        "clips_mean": False,
    }
    return official.model_copy(update={**shared, **changes})


def paper_rules(protocol: Rules, *, size: int | None = None, **changes: object) -> Rules:
    """The rules of a protocol as the paper uses it; `size` is its number of examples, where it takes not all."""
    return protocol.model_copy(update={"mode": "paper", "size": size, **changes})


def leaderboard_rules(official: Rules, judge: str, **changes: object) -> Rules:
    """The official rules with the judge of today's leaderboard; `changes` say since when, by which source, and more."""
    return official.model_copy(update={"mode": "leaderboard", "judge": judge, **changes})


SHORT_GUIDANCE = "Give the answer alone, as short as it can be, in \\boxed{}."


LEAST_TRIES = 3
"""Replies requested where the official script takes the first one: a reply without a verdict is asked again."""


GPT = "gpt-4.1-2025-04-14"


GEMINI_PRO = "gemini-2.5-pro-preview-06-05"
