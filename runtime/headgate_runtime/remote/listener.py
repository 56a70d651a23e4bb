"""What listens at an address from which a command got no answer.

Errors of libraries name frames and record versions. A user needs to know that the port is that of
the REST API, or that it speaks TLS. So the port is probed once, after a call has failed.
"""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from headgate_runtime.remote.remote import RemoteError

LOOK_S: Final = 2.0
SCHEMES: Final = ("grpc", "grpcs", "http", "https")
_NAMES: Final = {
    "grpc": "gRPC without TLS",
    "grpcs": "gRPC with TLS",
    "http": "HTTP without TLS",
    "https": "HTTP with TLS",
}
_CONTEXT: Final = "headgate context set NAME"
_ABOUT_CERTIFICATE: Final = (
    "it takes only clients with a certificate of an authority that it trusts",
    "set HEADGATE_CERTIFICATE_FILE and HEADGATE_KEY_FILE to the PEM files of such a one; of a "
    f"context: {_CONTEXT} --certificate-file FILE --key-file FILE",
)
WAIT: Final = "ask again in a moment; if it stays so, the worker's log says more"
_ALERT: Final = 0x15
"""First byte of a TLS server's refusal."""
_SETTINGS: Final = 4
"""Type of the frame that an HTTP/2 server sends first."""


def listens(host: str, port: int) -> str | None:
    """Return the protocol at a port, one of `SCHEMES`. None: nothing takes a connection there.
    Empty: it is another protocol."""
    try:
        plain = _first_bytes(host, port)
    except OSError:
        return None
    if plain.startswith(b"HTTP/"):
        return "http"
    if len(plain) > 3 and plain[3] == _SETTINGS and plain[0] != _ALERT:
        return "grpc"
    if plain and plain[0] != _ALERT:
        return ""
    chosen = _chosen_by_tls(host, port)
    if chosen is None:
        return ""
    return "grpcs" if chosen == "h2" else "https"


def advice(address: str) -> tuple[str, str]:
    """Return what listens there in place of what `address` says, and what to do next. Both are
    empty if it is as `address` says, or unknown."""
    try:
        where = urlsplit(address)
        host, port = where.hostname, where.port
    except ValueError:
        return "", ""
    if where.scheme not in SCHEMES or not host:
        return "", ""
    port = port or {"http": 80, "https": 443}.get(where.scheme)
    if port is None:
        return "", ""
    found = listens(host, port)
    if found is None:
        text = "any other worker of the cluster answers as well: give its address with --url or "
        return "", f"is this worker up? {text}HEADGATE_URL"
    if found == where.scheme:
        return _ABOUT_CERTIFICATE if _wants_certificate(host, port) else ("", "")
    if found:
        return f"the port speaks {_NAMES[found]}", f"--url {found}://{where.netloc}"
    return "the port speaks neither HTTP nor gRPC", (
        "give the address of a worker's listeners or headgate.grpc.listeners, not a broker's"
    )


def unreached(address: str, seen: str) -> RemoteError:
    """Return the error for an address that gave no answer. The call changes nothing, or was
    certainly not sent. `seen` is the library's message."""
    if "CERTIFICATE_VERIFY_FAILED" in seen:
        text = "its certificate is not trusted"
        step = "set HEADGATE_CA_FILE to the PEM file of its authority"
        return _unreached(address, text, f"{step}; of a context: {_CONTEXT} --ca-file FILE")
    there, next_step = advice(address)
    return _unreached(address, there or _short(seen), next_step or WAIT)


def _unreached(address: str, text: str, next_step: str) -> RemoteError:
    return RemoteError(f"{address} cannot be reached: {text}\n  next: {next_step}")


def _short(seen: str) -> str:
    """Return gRPC's message without its usual beginning."""
    _, found, rest = seen.partition("last error: ")
    return rest.partition(": ")[2] if found and ": " in rest else seen


def _first_bytes(host: str, port: int) -> bytes:
    """Return a server's first bytes after a request of HTTP/1.1. Empty: it has closed, or sent
    nothing."""
    with socket.create_connection((host, port), LOOK_S) as connection:
        connection.settimeout(LOOK_S)
        found = b""
        with contextlib.suppress(OSError):
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            while len(found) < 9:
                more = connection.recv(64)
                if not more:
                    break
                found += more
        return found


def _chosen_by_tls(host: str, port: int) -> str | None:
    """Return the protocol that the server chooses. None: it has no TLS."""
    try:
        with _over_tls(host, port) as connection:
            return connection.selected_alpn_protocol() or "http/1.1"
    except OSError:
        return None


def _wants_certificate(host: str, port: int) -> bool:
    """Return whether a TLS server hangs up on a client without a certificate before any request. A
    server that accepts it waits for a request, or sends its own first bytes."""
    try:
        with _over_tls(host, port) as connection:
            return connection.recv(1) == b""
    except ssl.SSLError as error:
        return "certificate" in str(error).lower()
    except OSError:
        return False


@contextlib.contextmanager
def _over_tls(host: str, port: int) -> Iterator[ssl.SSLSocket]:
    """Connect over TLS. Nothing is sent over it, so the server's certificate does not matter."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection((host, port), LOOK_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        yield connection
