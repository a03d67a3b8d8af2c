"""The recipes of ablations by name: the paper's four, the credit methods, and the ways to train with lessons.

Each recipe is a set of changes to a config.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import package_text


class Recipe(NamedTuple):
    """A way to train, as changes to a config: which credit, and whether the policy reflects."""

    name: str
    """Also its folder's name."""
    title: str
    credit: str
    meta_policy: bool
    more: Sequence[str] = ()
    """Further changes."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes as KEY=VALUE."""
        return (f"credit={self.credit}", f"meta_policy={'true' if self.meta_policy else 'false'}", *self.more)


_TABLE = json.loads(package_text("rubricem_records", "recipes.json"))

RECIPES, _METHODS, _REFERENCES = (tuple(Recipe(**row) for row in rows) for rows in _TABLE.values())
"""The four of the paper's ablation, the other credit methods, and the other ways to train with lessons."""

BASELINE, SS_GRPO = RECIPES[:2]

METHODS = (*RECIPES[:2], *_METHODS)
"""The credit methods."""

REFERENCES = (*RECIPES[2:], *_REFERENCES)
"""The ways to train with lessons."""

KNOWN = (*METHODS, *REFERENCES)


def choose_recipes(names: str) -> tuple[Recipe, ...]:
    """The recipes of `credit`, `references`, `all` or names with commas; SS-GRPO and answer-only GRPO always.

    Raises:
        UsageError: there is no such recipe.
    """
    sets = {"credit": METHODS, "references": (*METHODS[:2], *REFERENCES), "all": KNOWN}
    if names in sets:
        return sets[names]
    known = {one.name: one for one in KNOWN}
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no method {name!r}; give {', '.join(sets)}, or some of {', '.join(known)}.")
    return tuple(one for name, one in known.items() if name in wanted or one in METHODS[:2])
