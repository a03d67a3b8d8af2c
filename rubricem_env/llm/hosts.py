"""The hosts of addresses, and to which of them a key may be sent."""

import re
from urllib.parse import urlsplit

from rubricem_env.domain.errors import ConfigError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::[0-9]{1,5})?")


def host_of(netloc: str) -> str:
    """The host of a Host header, or of an address's part between // and the path; empty for anything but HOST[:PORT].

    A login before the host, and text after the brackets of an IPv6 address, make it something else.
    """
    match = _HOST.fullmatch(netloc.strip().lower())
    return (match[1] or match[2]) if match else ""


def url_host(url: str) -> str:
    """The host of a whole address, as `host_of`."""
    try:
        return host_of(urlsplit(url).netloc)
    except ValueError:
        return ""


def refuse_plain_http(url: str, variable: str) -> None:
    """Raise ConfigError where a key would be sent to an address unencrypted, other than within this machine."""
    host = url_host(url)
    if not host or (urlsplit(url).scheme.lower() != "https" and host not in LOOPBACK):
        raise ConfigError(
            f"{variable} is not sent to {host or 'an address with a login or without a plain host'} unencrypted. "
            "Use an "
            f"https address or a tunnel to 127.0.0.1, or unset {variable}."
        )
