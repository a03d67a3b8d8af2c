"""The reference block: what the bank has found, put before a question as reference and never as instruction.

An item is text that a model wrote after reading pages, so it is foreign: its tags are defused, and lines that would
look like the block's own headings are escaped.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from rubricem_agent.memory.bank import Retrieval
from rubricem_agent.prompting import SHIPPED_PROMPTS, AgentPrompts, fill
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.settings import Settings
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.scaffold.untrusted import GAP, neutralize
from rubricem_records.bank.bank_items import BankItem, Retrieved

CountTokens = Callable[[str], int]
BLOCK_TOKENS = 4_096
"""Half of the paper's longest prompt."""
_HEADING = re.compile(
    rf"^((?:{GAP}(?:[>*+-]|\d+[.)])){{0,9}}{GAP})([#＃﹟]{{1,6}}(?=\s|$)|(?:[-=*_－＝][ \t]*){{3,}}$)"
)

_SEPARATOR = "\n\n---\n\n"
Share = Annotated[float, Field(ge=0, le=1)]


class ReferenceSettings(Settings):
    """Which attempts of a group see lessons, and how those are trained on. The defaults are the paper's way."""

    share: Share = 1.0
    """Of a group's attempts, at step 1."""
    last_share: Share | None = None
    """At step `reach` and later, on a straight line from `share`. None: `share` throughout."""
    reach: Annotated[int, Field(ge=2)] = 12
    distill_context: bool = False
    """Train on the text of a guided attempt after the opening of a plain one, so that what a lesson says is learnt.

    The text was sampled with the lesson: `loss.importance_cap` weighs its tokens by their probability without it.
    """

    def share_at(self, step: int) -> float:
        """The share at a step, from 1."""
        last = self.share if self.last_share is None else self.last_share
        return self.share + (last - self.share) * min(1.0, (step - 1) / (self.reach - 1))

    def is_guided(self, attempt: int, step: int) -> bool:
        """Whether an attempt of a group, from 0, sees lessons: they are spread evenly, and the last one sees them."""
        share = self.share_at(step)
        return math.floor((attempt + 1) * share + 1e-9) > math.floor(attempt * share + 1e-9)


Block = tuple[str, tuple[Retrieved, ...]]
"""The text that stands before a question, empty where there is none, and the lessons in it."""
NO_LESSONS: Block = ("", ())


class Injector:
    """Renders blocks within a token budget."""

    def __init__(
        self,
        *,
        count_tokens: CountTokens,
        budget: int = BLOCK_TOKENS,
        prompts: AgentPrompts = SHIPPED_PROMPTS,
        scaffold: Scaffold = DEFAULT,
    ) -> None:
        self._count_tokens = count_tokens
        self._budget = budget
        self._prompts = prompts
        self._scaffold = scaffold

    def render(self, found: Sequence[Retrieved], mode: Retrieval) -> Block:
        """What was found, the least similar left out first for want of room."""
        prompt = self._prompts[f"inject_{mode}"]
        shown = sorted(found, key=lambda hit: (-hit.similarity, hit.item.key))
        while shown:
            examples = [
                _render_example(prompt.section("example"), at, hit.item, self._scaffold)
                for at, hit in enumerate(shown, start=1)
            ]
            block = fill(prompt.section("block"), {"examples": _SEPARATOR.join(examples)})
            if self._count_tokens(block) <= self._budget:
                return block, tuple(shown)
            shown.pop()
        return NO_LESSONS


def _render_example(layout: str, number: int, item: BankItem, scaffold: Scaffold) -> str:
    reflection = item.reflection
    parts = {"rubrics": quote(reflection.rubrics, scaffold), "takeaways": quote(reflection.takeaways, scaffold)}
    if "{{question}}" in layout:
        parts |= {"number": str(number), "question": quote(reflection.question, scaffold)}
    return fill(layout, parts)


def quote(text: str, scaffold: Scaffold = DEFAULT) -> str:
    """Foreign text that can neither close the block nor pass for one of its headings, with plain line breaks."""
    lines = neutralize(text.strip(), scaffold).splitlines()
    return "\n".join(_HEADING.sub(r"\1\\\2", line) for line in lines)
