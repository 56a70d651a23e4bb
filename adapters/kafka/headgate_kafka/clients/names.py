"""Checks whether the hosts of ``bootstrap.servers`` have addresses and accept connections.

librdkafka tries to resolve a name for as long as the client lives, and only reports that no broker
answers. Java's clients fail to be made: ConfigException, "No resolvable bootstrap urls given".
"""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

from headgate.ports import RefusedError, TransportError

PATIENCE_S: Final = 20.0
"""How long a name is resolved again while the resolver reports a temporary failure."""
_AGAIN_S: Final = 1.0
_CONNECT_S: Final = 3.0
_PORT: Final = "9092"


def unresolvable(servers: str) -> tuple[str, bool]:
    """Return why none of the servers has an address, and whether the failure may be temporary. An
    empty text: one of them has an address.

    Source: ClientUtils.parseAndValidateAddresses.
    """
    reasons, passing = [], False
    for host, _ in _places(servers):
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError) as error:
            reasons.append(f"{host}: {getattr(error, 'strerror', None) or error}")
            passing |= isinstance(error, OSError) and error.errno == socket.EAI_AGAIN
        else:
            return "", False
    given = ", ".join(reasons) or servers
    return f"No resolvable bootstrap urls given in bootstrap.servers: {given}", passing


def refusing(servers: str) -> str:
    """Return why none of the servers accepts a TCP connection. Nothing is sent over it.

    Empty: one of them does, or none has an address, which `check_names` and `check_names_for_good`
    report.
    """
    if unresolvable(servers)[0]:
        return ""
    reasons: list[str] = []
    for host, port in _places(servers):
        try:
            socket.create_connection((host, int(port)), _CONNECT_S).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
        else:
            return ""
    return ", ".join(reasons)


def _places(servers: str) -> Iterator[tuple[str, str]]:
    """Yield host and port of each server."""
    for server in filter(None, (each.strip() for each in servers.split(","))):
        host, colon, port = server.rpartition("://")[2].rpartition(":")
        yield host.strip("[]") if colon else port, port if colon else _PORT


def check_names(servers: str) -> None:
    """Check that at least one server has an address.

    Raises:
        TransportError: none of the servers has an address.
    """
    reason, _ = unresolvable(servers)
    if reason:
        raise TransportError(reason)


def check_names_for_good(
    servers: str,
    *,
    sleep: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """As `check_names`, for a client without which its task fails. Temporary failures of the
    resolver are tried again for `PATIENCE_S`.

    Raises:
        RefusedError: none of the servers has an address.
    """
    until = now() + PATIENCE_S
    while True:
        reason, passing = unresolvable(servers)
        if not reason:
            return
        if not passing or now() >= until:
            raise RefusedError(reason)
        sleep(_AGAIN_S)
