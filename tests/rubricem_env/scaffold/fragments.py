"""Text that a scaffold parser should fear: pieces of structure, broken characters, and what lies in between."""

from itertools import pairwise

from hypothesis import strategies as st

from rubricem_env.scaffold.grammar import grammar_of
from tests.scaffolds import SCAFFOLDS

NAMES = tuple(dict.fromkeys(name for scaffold in SCAFFOLDS for name in grammar_of(scaffold).canonical))
TAGS = [f"<{slash}{name}>" for name in NAMES for slash in ("", "/")]
ODDITIES = [
    '<call_tool name="google_search">',
    "<call_tool name=google_search limit='3'>",
    '<call_tool name="a>b" query="q"/>',
    '<call_tool name="',
    '<cite id="S_1, S_2">',
    "<cite id=S_3>",
    "<answer/>",
    "<think/>",
    "<tool_output/>",
    "<Answer >",
    "</ANSWER\n>",
    "</answer x='>",
    "<",
    "</",
    ">",
    '"',
    "'",
    " ",
    "\n",
    "\x00",
    "\u202e",
    "\u200b",
    "\ud800",
    "&lt;answer&gt;",
    "\uff1canswer>",
    "<|im_end|>",
    "\\",
    "claim",
]
fragments = st.sampled_from([*TAGS, *ODDITIES]) | st.text(st.characters(codec=None, exclude_categories=()), max_size=5)
emissions = st.lists(fragments, max_size=25).map("".join)


@st.composite
def pieces_of(draw: st.DrawFn, text: str) -> list[str]:
    """The text in pieces, some of them empty."""
    bounds = [0, *sorted(draw(st.lists(st.integers(0, len(text)), max_size=12))), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]
