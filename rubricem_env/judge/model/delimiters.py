"""Puts content between delimiter lines that the content cannot contain."""

import json
import re
from collections.abc import Mapping, Sequence

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.judge.model.templates import digest
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.scaffold.untrusted import defuse

_WIDE_BREAK = re.compile("[\x85\u2028\u2029]")


def delimit(contents: Sequence[tuple[str, object]], seed: int, scaffold: Scaffold = DEFAULT) -> str:
    """One labelled block for each (label, content), as JSON between two delimiter lines.

    The nonce of a block depends on it and on those before it, so prompts that begin alike share that beginning, which
    servers cache. None stands anywhere in the content. JSON escapes line breaks, so no line of the content can look
    like a delimiter. Control tokens are made inert.
    """
    blocks = [(label, write_block(content, scaffold)) for label, content in contents]
    body = f"[{', '.join(block for _, block in blocks)}]"
    nonce = str(seed)
    delimited = []
    for label, block in blocks:
        before = nonce
        attempt = 0
        while (nonce := digest(f"{before}\0{attempt}\0{block}")) in body:
            attempt += 1
        delimited.append(f"<<<BEGIN {label} {nonce}>>>\n{block}\n<<<END {label} {nonce}>>>")
    return "\n\n".join(delimited)


def _defuse_all(content: object, scaffold: Scaffold) -> object:
    if isinstance(content, str):
        return defuse(content, scaffold)
    if isinstance(content, Mapping):
        return {name: _defuse_all(part, scaffold) for name, part in content.items()}
    return [_defuse_all(part, scaffold) for part in content] if isinstance(content, list | tuple) else content


def write_block(content: object, scaffold: Scaffold = DEFAULT) -> str:
    """The content as JSON on one line, with control tokens made inert."""
    text = json.dumps(_defuse_all(content, scaffold), ensure_ascii=False, allow_nan=False)
    # JSON escapes the line breaks below U+0020; these three also break lines for some readers.
    return text if text.isascii() else _WIDE_BREAK.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
