"""The four recipes of the paper's ablation, as changes to a config."""

from typing import NamedTuple


class Recipe(NamedTuple):
    """Which credit, and whether the policy reflects."""

    name: str
    """Of its folder."""
    title: str
    credit: str
    meta_policy: bool

    @property
    def changes(self) -> tuple[str, ...]:
        """KEY=VALUE."""
        return (f"credit={self.credit}", f"meta_policy={'true' if self.meta_policy else 'false'}")


RECIPES = (
    Recipe("answer_only", "answer-only GRPO", "terminal", False),
    Recipe("ss_grpo", "SS-GRPO", "stages", False),
    Recipe("answer_only_meta", "answer-only + meta-policy", "terminal", True),
    Recipe("whole", "SS-GRPO + meta-policy", "stages", True),
)
BASELINE = RECIPES[0]


def title_of(credit: str, *, meta_policy: bool) -> str:
    """What a run with these settings is called."""
    return next(one.title for one in RECIPES if (one.credit, one.meta_policy) == (credit, meta_policy))
