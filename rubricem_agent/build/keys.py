"""Whose key goes to which server, and in which variable it is looked for."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from rubricem_env.llm.secrets import read_secret

OPENAI_KEY = "OPENAI_API_KEY"
OPENAI_HOST = "api.openai.com"
GEMINI_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
GEMINI_HOST = "googleapis.com"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ServerKey(NamedTuple):
    """A server's key, or none, and the variable that holds it or would hold it: what a refusal is answered with."""

    value: SecretStr | None
    variable: str


def key_for(url: str, environ: Mapping[str, str], *, own: str, who: str) -> ServerKey:
    """The key in the variable `own` for any server; OpenAI's key for OpenAI alone, so that a URL cannot fetch it.

    Raises:
        ConfigError: the server is OpenAI's, and there is no key.
    """
    written = environ.get(own, "").strip()
    if written:
        return ServerKey(SecretStr(written), own)
    if urlsplit(url).hostname != OPENAI_HOST:
        return ServerKey(None, own)
    return ServerKey(read_secret(environ, OPENAI_KEY, own, purpose=f"the {who} at {OPENAI_HOST}"), OPENAI_KEY)


def google_key_for(url: str, environ: Mapping[str, str], *, own: str, who: str) -> SecretStr:
    """The key in the variable `own` for any server; Google's key for Google and this machine alone.

    Raises:
        ConfigError: there is none that may go there.
    """
    return read_secret(environ, *google_key_names(url, own=own), purpose=f"{who} at {_host(url)}")


def google_key_names(url: str, *, own: str) -> tuple[str, ...]:
    """The variables that are looked into for a server of Gemini's API, the first one first."""
    host = _host(url)
    is_trusted = host == GEMINI_HOST or host.endswith(f".{GEMINI_HOST}") or host in LOOPBACK
    return (own, *GEMINI_KEYS) if is_trusted else (own,)


def _host(url: str) -> str:
    return urlsplit(url).hostname or GEMINI_HOST
