"""What can go wrong with a bank, below the project's own tree of errors."""

from rubricem_env.domain.errors import BoundaryError, FileFormatError, UsageError


class BankFormatError(FileFormatError):
    """A bank, a snapshot or an export is missing, malformed, or of a version or embedder that cannot be used."""


class SnapshotStepError(UsageError):
    """A snapshot belongs to another training step than the one asked for."""


class UnknownItemError(UsageError):
    """The bank has no item of that number, or it cannot change in the asked way."""


class BankStoreError(BoundaryError):
    """The database under the bank failed: nothing is known to be written."""
