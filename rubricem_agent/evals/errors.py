"""What the benchmark scorers and the readers of their files raise.

RubricEMError
├── ScoringError               the official scorer raises on this input; `official` names the type that it raises
└── UsageError
    └── FileFormatError
        ├── BenchmarkFileError a benchmark file is not what its official format says
        └── RecordedCaseError  a line of recorded verdicts cannot be read
"""

from rubricem_env.domain.errors import FileFormatError, RubricEMError


class ScoringError(RubricEMError):
    """The official scorer stops on this input, and so do we, instead of inventing a number.

    `official` is the name of the exception type that the official code raises there; `judge_calls` is how many
    replies had been asked for by then, where the scorer counts them.
    """

    def __init__(self, official: str, reason: str, *, judge_calls: int | None = None) -> None:
        super().__init__(f"{reason} (the official scorer raises {official} here)")
        self.official = official
        self.reason = reason
        self.judge_calls = judge_calls


class BenchmarkFileError(FileFormatError):
    """A benchmark file is missing, of another version, or malformed at a named place."""


class RecordedCaseError(FileFormatError):
    """A file of recorded verdicts has a line that cannot be read."""
