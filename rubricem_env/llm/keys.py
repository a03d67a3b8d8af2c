"""Keys: where they are read, and how they are redacted in text.

A key is a SecretStr. It is read from a given mapping, such as `os.environ`.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from urllib.parse import quote, quote_plus

from pydantic import SecretStr

from rubricem_env.domain.errors import ConfigError, ModelError

REDACTED = "[redacted]"
MIN_SECRET_LENGTH = 6
"""Shorter values are not redacted: they occur in ordinary text, and no real key is so short."""


def read_secret(environ: Mapping[str, str], *names: str, purpose: str) -> SecretStr:
    """The value of the first of `names` that is set and not blank, without surrounding whitespace.

    Raises:
        ConfigError: none is set; the message names them, never a value.
    """
    for name in names:
        value = environ.get(name, "").strip()
        if value:
            return SecretStr(value)
    raise ConfigError(f"{purpose} needs a key; set {' or '.join(names)} in the environment.")


_CREDENTIAL = re.compile(r"SECRET|PASSW|CREDENTIAL|(?:KEY|KEYS|TOKEN|TOKENS|PAT|AUTH)\Z", re.IGNORECASE)


def without_keys(environ: Mapping[str, str], *, but: Collection[str] = ()) -> dict[str, str]:
    """The environment of a child process: every variable but those named like keys, and of these the needed ones."""
    return {name: value for name, value in environ.items() if name in but or not _CREDENTIAL.search(name)}


Redactor = Callable[[str], str]
"""Replaces known secrets in a text; `str` replaces none."""


def redactor_of(secrets: Iterable[SecretStr]) -> Redactor:
    """Replaces each of the secrets by `[redacted]`: plain, percent-encoded, or escaped as in JSON."""
    values = [secret.get_secret_value() for secret in secrets]
    forms = {
        form
        for value in values
        if len(value) >= MIN_SECRET_LENGTH
        for form in (value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1])
    }
    longest_first = sorted(forms, key=len, reverse=True)

    def redact(text: str) -> str:
        for form in longest_first:
            text = text.replace(form, REDACTED)
        return text

    return redact


def redact_failure(failure: ModelError, redactor: Redactor) -> ModelError:
    """The failure without known secrets in its message."""
    return ModelError(
        redactor(str(failure)),
        is_retryable=failure.is_retryable,
        retry_after=failure.retry_after,
        is_rate_limited=failure.is_rate_limited,
    )
