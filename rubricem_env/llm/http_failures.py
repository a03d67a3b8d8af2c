"""The typed failures of a server's HTTP replies."""

import re
from http import HTTPStatus

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.limits.retry import RETRYABLE_STATUS


class ContextOverflow(ModelError):
    """The request exceeds the model's context."""


_OVERFLOW = re.compile(r"context[_ ](?:length|window|size)|max_model_len|maximum model length", re.IGNORECASE)


def says_overflow(body: str) -> bool:
    """Whether a refusal is about the length of the context."""
    return _OVERFLOW.search(body) is not None


_NO_CREDIT = "insufficient_quota"
"""What OpenAI says in a 429 where an account has no credit: no waiting helps."""
WEB_PAGE = "a web page in place of the API; check the address of the server"
_PAGE_BEGIN = re.compile(r"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)


def is_web_page(body: str) -> bool:
    """Whether a body is HTML, as a gateway, a login page or a wrong address answers with."""
    return _PAGE_BEGIN.match(body) is not None


def status_error(status: int, message: str, *, retry_after: float | None = None, key_variable: str = "") -> ModelError:
    """The typed failure for an HTTP status. `key_variable` is named in the message if the key is refused."""
    shown = f" with {WEB_PAGE}" if is_web_page(message) else f": {message.strip()[:500] or 'no message'}"
    said = f"the server answered {status}{shown}"
    if status in (401, 403) and key_variable:
        said = f"{said.rstrip('.')}. Set {key_variable} in the environment to a key that this server takes."
    return ModelError(
        said,
        is_retryable=status in RETRYABLE_STATUS,
        retry_after=retry_after,
        is_rate_limited=status == HTTPStatus.TOO_MANY_REQUESTS and _NO_CREDIT not in message,
    )
