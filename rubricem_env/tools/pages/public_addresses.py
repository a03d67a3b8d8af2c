"""Resolves the host of a page, refuses an address that is not public, and pins the address."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

import httpx2

from rubricem_env.domain.trajectory import ToolStatus
from rubricem_env.tools.failures import ToolFailure

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16"), ipaddress.ip_address("192.0.0.192")})
"""Metadata services of cloud providers, at addresses that count as public."""
WEB_PORTS = frozenset({80, 443})


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, from the system's resolver."""
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in entries]


async def pin(
    url: str, resolver: Resolver, *, ports: frozenset[int] = WEB_PORTS, exceptions: frozenset[str] = frozenset()
) -> tuple[httpx2.URL, str]:
    """Check a page's address and resolve its host once. Connect to the returned address only.

    `exceptions` are addresses that are allowed although they are not public, such as those of your own site.

    Raises:
        ToolFailure: blocked, if the scheme, the port, or any address of the host is not allowed.
    """
    parsed = parse_address(url, ports)
    try:
        addresses = await resolver(parsed.host, _port(parsed))
    except (OSError, UnicodeError) as failure:
        raise ToolFailure(f"the host {parsed.host[:100]!r} is not known.") from failure
    if not addresses:
        raise ToolFailure(f"the host {parsed.host[:100]!r} has no address.")
    # All of them, not the first: a name with one private address is an attack or a mistake.
    for address in addresses:
        if address not in exceptions and not is_public(address):
            raise blocked(f"{parsed.host[:100]!r} is not a public host")
    return parsed, addresses[0]


def is_public(written: str) -> bool:
    """Whether an address is on the public internet, and so is any IPv4 address that it contains."""
    try:
        address: Address = ipaddress.ip_address(written)
    except ValueError:
        return False
    return _is_open(address) and all(_is_open(inner) for inner in _wrapped(address))


def _is_open(address: Address) -> bool:
    closed = address.is_multicast or address.is_reserved or address.is_unspecified or address in _METADATA
    site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    # A mapped address is not global by itself; the IPv4 address inside decides.
    mapped = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
    return mapped or (address.is_global and not closed and not site_local)


def _wrapped(address: Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _COMPATIBLE or any(address in network for network in _NAT64):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address for address in inner if address is not None]


def parse_address(url: str, ports: frozenset[int]) -> httpx2.URL:
    try:
        parsed = httpx2.URL(url.strip())
    except (httpx2.InvalidURL, UnicodeError, ValueError) as problem:
        raise ToolFailure(
            f"{url[:100]!r} is not a web address; write one such as https://example.org/page."
        ) from problem
    if parsed.scheme not in ("http", "https"):
        raise blocked(f"{parsed.scheme[:20] or 'no scheme'!r} is not http or https")
    if not parsed.host:
        raise ToolFailure(f"{url[:100]!r} names no host; write an address such as https://example.org/page.")
    if parsed.userinfo:
        raise blocked("the address holds a user name or a password")
    if _port(parsed) not in ports:
        raise blocked(f"port {_port(parsed)} is not among {', '.join(map(str, sorted(ports)))}")
    return parsed


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def blocked(reason: str) -> ToolFailure:
    return ToolFailure(f"the page is not fetched: {reason}.", status=ToolStatus.BLOCKED)
