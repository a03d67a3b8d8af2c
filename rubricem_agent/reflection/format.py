"""The form of a reflection: two blocks, once each, in order, with nothing beside them but a leading thought."""

import re
from typing import NamedTuple

from rubricem_agent.memory.gate import Refusal, RefusalCode

RUBRICS = "reflection_rubrics"
TAKEAWAYS = "reflection_takeaways"
_WHOLE = re.compile(
    rf"\s*(?:<think>(?:(?!</?think>).)*</think>)?\s*"
    rf"<{RUBRICS}>(?P<rubrics>.*?)</{RUBRICS}>\s*<{TAKEAWAYS}>(?P<takeaways>.*?)</{TAKEAWAYS}>\s*",
    re.DOTALL,
)


class Blocks(NamedTuple):
    """What the two blocks say, stripped."""

    rubrics: str
    takeaways: str


def parse_blocks(text: str) -> Blocks | Refusal:
    """The blocks of a reflection, or the first thing that is wrong with its form. Never raises."""
    for name in (RUBRICS, TAKEAWAYS):
        for tag in (f"<{name}>", f"</{name}>"):
            count = text.count(tag)
            if count != 1:
                said = "is missing" if count == 0 else f"stands there {count} times"
                return Refusal(RefusalCode.FORMAT, f"{tag} {said}; each block is written once and closed.")
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return Refusal(
            RefusalCode.FORMAT,
            f"the reply is more than <{RUBRICS}> and then <{TAKEAWAYS}>; nothing but a leading <think> may stand beside.",
        )
    blocks = Blocks(whole["rubrics"].strip(), whole["takeaways"].strip())
    if not all(blocks):
        empty = RUBRICS if not blocks.rubrics else TAKEAWAYS
        return Refusal(RefusalCode.FORMAT, f"the block <{empty}> is empty.")
    return blocks
