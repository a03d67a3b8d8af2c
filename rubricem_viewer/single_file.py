"""One HTML file that opens from disk: script, style and the server's answers are inside it.

The script and the style are built from `web` by `make viewer-bundle`.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from string import Template

from pydantic import BaseModel

STATIC = Path(__file__).parent / "static"


@cache
def load_bundle() -> tuple[str, str]:
    """The script and the style that this release ships."""
    script, style = ((STATIC / name).read_text(encoding="utf-8") for name in ("viewer.js", "viewer.css"))
    return script, style


def security_policy(script: str, style: str) -> str:
    """A content security policy that allows this script and this style and nothing else."""
    return (
        f"default-src 'none'; script-src '{source_hash(script)}'; style-src '{source_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def source_hash(text: str) -> str:
    """The name under which a content security policy lets an inline script or style in."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_INERT = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
"""Inside a script element only JSON's own characters stand: no text of a run can end the element or begin another."""


def make_file(title: str, answers: Mapping[str, BaseModel], *, made: str) -> str:
    """A page that shows `answers`, which are those of the server by path; `made` says of what and when."""
    recorded = {"made": made, "answers": {path: answer.model_dump(mode="json") for path, answer in answers.items()}}
    script, style = load_bundle()
    return Template((Path(__file__).parent / "report.html").read_text(encoding="utf-8")).substitute(
        policy=security_policy(script, style),
        title=escape(title),
        style=style,
        recorded=inert_json(recorded),
        script=script,
    )


def inert_json(value: object) -> str:
    """JSON that is nothing but JSON inside a script element.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_INERT)
