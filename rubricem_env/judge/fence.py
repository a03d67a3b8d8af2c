"""The fence around what is judged: content as JSON strings between lines that the content cannot contain."""

import hashlib
import json
import re
from typing import Any, NamedTuple

NONCE_LENGTH = 16
_WIDE_BREAK = re.compile("[\x85\u2028\u2029]")
_BLOCK = re.compile(
    r"^<<<BEGIN (?P<label>[A-Z]+) (?P<nonce>[0-9a-f]{16})>>>\n(?P<body>.*?)\n<<<END (?P=label) (?P=nonce)>>>$",
    re.M | re.S,
)


class Fence(NamedTuple):
    """Delimiters of one prompt."""

    nonce: str

    @classmethod
    def around(cls, content: object, seed: int) -> "Fence":
        """A fence whose nonce depends on all of the content, so that no part of it can know or hold the nonce."""
        body = _dump(content)
        attempt = 0
        while (nonce := _digest(f"{seed}\0{attempt}\0{body}")) in body:
            attempt += 1
        return cls(nonce)

    def block(self, label: str, content: object) -> str:
        """One labelled block. JSON escapes line breaks, so no line of the content can look like its end."""
        return f"<<<BEGIN {label} {self.nonce}>>>\n{_dump(content)}\n<<<END {label} {self.nonce}>>>"


def read_blocks(prompt: str) -> dict[str, Any]:
    """The blocks of a prompt by label: how a scripted judge reads what a model is shown."""
    return {found["label"]: json.loads(found["body"]) for found in _BLOCK.finditer(prompt)}


def _dump(content: object) -> str:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    # JSON escapes the line breaks below U+0020; these three are line breaks to some readers and stand as they are.
    return text if text.isascii() else _WIDE_BREAK.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:NONCE_LENGTH]
