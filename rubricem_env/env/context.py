"""When the policy's view of an episode is folded, and how far: a bounded context over a record of any length.

    context = ContextLimits(fold_at=24_000, fold_to=8_000, keep=3)

Nothing is asked of a model. The same record folds in the same way, and each fold is written into it.
"""

from collections.abc import Sequence
from itertools import accumulate

from pydantic import model_validator

from rubricem_env.domain.base import PositiveCount
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.settings import Settings
from rubricem_env.domain.trajectory import Fold, Segment
from rubricem_env.env.view import RecordedTurn, View, ViewedTurn, view_of
from rubricem_env.tools.render import TokenCount


class ContextLimits(Settings):
    """How much of an episode the policy reads. Off by default: it reads all of it.

    All are tokens of what the policy reads, the prompt included. `limits.max_tokens` bounds the record, folded or not.
    """

    fold_at: PositiveCount | None = None
    """The view is folded where it has more tokens than this. None never folds it."""
    fold_to: PositiveCount = 8_192
    """A folded view has no more tokens than this, unless the prompt and the latest result alone have more."""
    keep: PositiveCount = 3
    """The last results that stay whole, with the turns around them."""

    @model_validator(mode="after")
    def _folds_to_less(self) -> "ContextLimits":
        defaults = type(self).model_fields
        if self.fold_at is None:
            given = [name for name in ("fold_to", "keep") if getattr(self, name) != defaults[name].default]
            if given:
                raise ValueError(f"{given[0]} is set and fold_at is not, so nothing is folded. Set fold_at")
        elif self.fold_to >= self.fold_at:
            raise ValueError(
                f"fold_to is {self.fold_to} and fold_at is {self.fold_at}; a fold needs to make the view shorter. "
                "Lower fold_to or raise fold_at"
            )
        return self

    def check_opening(self, tokens: int) -> None:
        """Raise ConfigError where what the policy reads first leaves no room in a folded view."""
        if self.fold_at is not None and tokens >= self.fold_to:
            raise ConfigError(
                f"the prompt has {tokens} tokens and context.fold_to is {self.fold_to}; a folded view has the prompt "
                "and needs room for more. Raise fold_to and fold_at, or shorten the prompt."
            )


CLIPS = (4_000, 2_000, 1_000, 500, 250, 125, 60)
"""Characters that blocks are cut to, one after the other, where nothing else is left to fold."""


class EpisodeView:
    """The policy's view of a running episode, which folds where its limits say."""

    def __init__(
        self, prompt: str, *, limits: ContextLimits, count_tokens: TokenCount, scaffold: Scaffold, system: str = ""
    ) -> None:
        """`system` is what the policy reads before the prompt.

        Raises:
            ConfigError: both leave no room in a folded view.
        """
        self.limits = limits
        self.folds: list[Fold] = []
        self._prompt = prompt
        self._count = count_tokens
        self._scaffold = scaffold
        self._turns: list[RecordedTurn] = []
        self._shown: list[ViewedTurn] = []
        """What the last fold left, and the turns since."""
        self._lined: dict[int, tuple[int, int, int]] = {}
        self._opening = 0 if limits.fold_at is None else count_tokens(system) + count_tokens(prompt)
        limits.check_opening(self._opening)
        self.tokens = self._opening
        """Of the view as it is."""
        self._used = 0

    @property
    def view(self) -> View:
        """What the policy reads before its next turn."""
        return View(self._prompt, tuple(self._shown))

    def append(self, text: str, read: Segment, *, used: int) -> None:
        """Take a turn and what was read after it; fold where that makes too much.

        `used` are the tokens of the record so far, without the prompt.
        """
        self._turns.append(RecordedTurn(len(self._turns) + 1, text, read, scaffold=self._scaffold))
        self._shown.append(self._turns[-1].whole)
        self.tokens += used - self._used
        self._used = used
        if self.limits.fold_at is not None and self.tokens > self.limits.fold_at:
            self.folds.append(self._fold())
            self._shown = list(view_of(self._prompt, self._turns, self.folds[-1], self._scaffold).turns)
            self.tokens = self._size(self.folds[-1])

    def _fold(self) -> Fold:
        """The fold that leaves most and fits.

        From the oldest turn on, titles go first, then calls with their lines, then what was weighed. Where that is not
        enough, fewer of the last turns stay whole; at last what is left is cut.
        """
        count = len(self._turns)
        for whole in range(min(self.limits.keep, count), -1, -1):
            fitting = self._fit(whole)
            if fitting is not None:
                return fitting
        clipped = [Fold(turn=count, left_out=count - 1, clip=clip) for clip in CLIPS]
        return next((fold for fold in clipped if self._size(fold) <= self.limits.fold_to), clipped[-1])

    def _fit(self, whole: int) -> Fold | None:
        """The fold with so many whole turns; None where that is too much however far the others are folded."""
        count = len(self._turns)
        # Where no turn is whole, what was read last is whole all the same.
        lined = [self._size_of_line(turn) for turn in self._turns[: min(count - whole, count - 1)]]
        room = self.limits.fold_to - self._size(Fold(turn=count, left_out=len(lined), whole=whole))
        if room < 0:
            return None
        weighed, lines, titles = (list(sizes) for sizes in zip(*lined, strict=True)) if lined else ([], [], [])
        spare = room - sum(weighed)
        if spare < 0:
            left_out = _first_that_make(weighed, -spare)
            return Fold(turn=count, left_out=left_out, weighed=len(lined) - left_out, whole=whole)
        spare -= sum(lines)
        if spare < 0:
            uncalled = _first_that_make(lines, -spare)
            return Fold(turn=count, weighed=uncalled, untitled=len(lined) - uncalled, whole=whole)
        spare -= sum(titles)
        return Fold(turn=count, untitled=_first_that_make(titles, -spare), whole=whole)

    def _size_of_line(self, turn: RecordedTurn) -> tuple[int, int, int]:
        """The tokens of a folded turn: of what it weighed, of its call and line, of titles. Each is counted once."""
        if turn.number not in self._lined:
            weighed, brief = self._count(turn.weighed()), turn.brief()
            bare, titled = (self._count(turn.line(has_titles=has_titles)) for has_titles in (False, True))
            self._lined[turn.number] = (weighed, self._count(brief) - weighed + bare if brief else 0, titled - bare)
        return self._lined[turn.number]

    def _size(self, fold: Fold) -> int:
        """The tokens of the view with this fold."""
        view = view_of(self._prompt, self._turns, fold, self._scaffold)
        return self._opening + sum(self._count(part) for turn in view.turns for part in (turn.text, turn.observation))


def _first_that_make(sizes: Sequence[int], needed: int) -> int:
    """How many of the first have so many tokens in all."""
    return next(number for number, made in enumerate(accumulate(sizes, initial=0)) if made >= needed)
