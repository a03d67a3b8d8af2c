"""What learning refuses.

RubricEMError
├── UsageError
│   ├── CreditError      scores, a matrix or stage ids from which no credit can be worked out
│   ├── BatchError       samples that contradict themselves
│   └── CheckpointError  a checkpoint that is damaged, mixed, or cannot be written
└── NonFiniteLossError   a loss that is no number: the step is refused, and the caller saves the batch
"""

from rubricem_env.domain.errors import RubricEMError, UsageError


class CreditError(UsageError):
    """Scores, a matrix or stage ids from which no credit can be worked out."""


class BatchError(UsageError):
    """Samples whose arrays contradict each other."""


class CheckpointError(UsageError):
    """A checkpoint is damaged, mixes steps, or cannot be written."""


class NonFiniteLossError(RubricEMError):
    """The loss, or something that it is made of, is not a finite number. No gradient may be applied."""
