"""Keys that stay secret: held as SecretStr, read from a mapping that the composition root hands in, redacted in text."""

import json
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

from pydantic import SecretStr

from rubricem_env.domain.errors import ConfigError

REDACTED = "[redacted]"
MIN_SECRET_LENGTH = 6
"""Shorter values are not redacted: they would tear holes into ordinary text, and no real key is so short."""


def read_secret(environ: Mapping[str, str], *names: str, purpose: str) -> SecretStr:
    """The first of `names` that is set and not blank; whitespace around it is dropped.

    Raises:
        ConfigError: none is set; the message names them, never a value.
    """
    for name in names:
        value = environ.get(name, "").strip()
        if value:
            return SecretStr(value)
    raise ConfigError(f"{purpose} needs a key; set {' or '.join(names)} in the environment.")


class Redactor:
    """Takes known secrets out of any text: plain, percent-encoded, or escaped as in JSON."""

    def __init__(self, secrets: Iterable[SecretStr] = ()) -> None:
        self._forms = tuple(sorted(_forms(secrets), key=len, reverse=True))

    def redact(self, text: str) -> str:
        """The text with each known secret replaced by `[redacted]`."""
        for form in self._forms:
            text = text.replace(form, REDACTED)
        return text


def _forms(secrets: Iterable[SecretStr]) -> set[str]:
    values = (secret.get_secret_value() for secret in secrets)
    return {
        form
        for value in values
        if len(value) >= MIN_SECRET_LENGTH
        for form in (value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1])
    }
