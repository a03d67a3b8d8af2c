"""The page as one file: script, style and the server's answers inside, opened from disk without any request."""

import json
from collections.abc import Mapping
from html import escape

from pydantic import BaseModel

from rubricem_agent.viewer.bundle import load_bundle

_INERT = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
"""Inside a script element only JSON's own characters stand: no text of a run can end the element or begin another."""


def make_file(title: str, answers: Mapping[str, BaseModel], *, made: str) -> str:
    """A page that shows `answers`, which are those of the server by path; `made` says of what and when."""
    recorded = {"made": made, "answers": {path: answer.model_dump(mode="json") for path, answer in answers.items()}}
    bundle = load_bundle()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{bundle.policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>{bundle.style}</style>\n</head>\n<body>\n'
        "<noscript>This page shows its data with a script of its own; allow it to run.</noscript>\n"
        f'<div id="app"></div>\n<script type="application/json" id="recorded">{inert_json(recorded)}</script>\n'
        f'<script type="module">{bundle.script}</script>\n</body>\n</html>\n'
    )


def inert_json(value: object) -> str:
    """JSON that is nothing but JSON inside a script element.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_INERT)
