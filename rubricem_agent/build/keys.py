"""Whose key goes to which server that speaks OpenAI's API, and in which variable it is looked for."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from rubricem_env.llm.secrets import read_secret

OPENAI_KEY = "OPENAI_API_KEY"
OPENAI_HOST = "api.openai.com"


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
