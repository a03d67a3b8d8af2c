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
    """The recipe's name, and that of its folder."""
    title: str
    credit: str
    meta_policy: bool
    more: Sequence[str] = ()
    """Further changes, as KEY=VALUE."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes as KEY=VALUE."""
        return (f"credit={self.credit}", f"meta_policy={'true' if self.meta_policy else 'false'}", *self.more)


class RecipeTable(NamedTuple):
    """The recipes as recipes.json lists them."""

    paper: tuple[Recipe, ...]
    """The four of the paper's ablation."""
    methods: tuple[Recipe, ...]
    """The other credit methods."""
    references: tuple[Recipe, ...]
    """The other ways to train with lessons."""


def _read_table() -> RecipeTable:
    listed = json.loads(package_text("rubricem_records.runs", "recipes.json"))
    return RecipeTable(**{part: tuple(Recipe(**row) for row in rows) for part, rows in listed.items()})


_TABLE = _read_table()
RECIPES = _TABLE.paper
"""The four of the paper's ablation."""
BASELINE = next(recipe for recipe in RECIPES if recipe.name == "answer_only")
SS_GRPO = next(recipe for recipe in RECIPES if recipe.name == "ss_grpo")
METHODS = (BASELINE, SS_GRPO, *_TABLE.methods)
"""The credit methods."""
REFERENCES = (*(recipe for recipe in RECIPES if recipe.meta_policy), *_TABLE.references)
"""The ways to train with lessons."""

KNOWN = (*METHODS, *REFERENCES)


def choose_recipes(names: str) -> tuple[Recipe, ...]:
    """The recipes of `credit`, `references`, `all` or names with commas; SS-GRPO and answer-only GRPO always.

    Raises:
        UsageError: there is no such recipe.
    """
    sets = {"credit": METHODS, "references": (BASELINE, SS_GRPO, *REFERENCES), "all": KNOWN}
    if names in sets:
        return sets[names]
    known = {recipe.name: recipe for recipe in KNOWN}
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no method {name!r}; give {', '.join(sets)}, or some of {', '.join(known)}.")
    return tuple(recipe for recipe in KNOWN if recipe.name in wanted or recipe in (BASELINE, SS_GRPO))
