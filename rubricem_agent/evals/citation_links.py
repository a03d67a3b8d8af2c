"""Markdown links in reports, as FACT's extraction step prepares them."""

import re

_LINK = re.compile(r"\[(?P<title>[^\]]+)\]\((?P<url>[^)]+)\)")
_TEXT_FRAGMENT = "#:~:text="


def clean_urls(text: str) -> str:
    """Every link without the text fragment that points into the page."""
    return _LINK.sub(lambda link: f"[{link['title']}]({link['url'].partition(_TEXT_FRAGMENT)[0]})", text)


def remove_urls(text: str) -> str:
    """Every link cut down to its bracketed title."""
    return _LINK.sub(lambda link: f"[{link['title']}]", text)


def clean_escape(text: str) -> str:
    """The text without the four backslash escapes that JSON does not know."""
    for character in "><+~":
        text = text.replace(f"\\{character}", character)
    return text
