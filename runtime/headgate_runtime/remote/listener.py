"""What listens at an address that a command has not got an answer from.

Errors of libraries name frames and record versions. A user wants to know that the port is the REST
API's, or that TLS is spoken there. So the port is asked, once, after a call has failed.
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
"""Type of the frame that a server of HTTP/2 sends first."""


def listens(host: str, port: int) -> str | None:
    """One of `SCHEMES`; None: nobody takes a connection there; empty: something else."""
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
    """What is there in place of what `address` says, and what to do next; empty: as it says, or it
    is not known."""
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
    """The refusal for an address that has not answered a call that changes nothing, or that was
    surely not sent. `seen`: what the library says."""
    if "CERTIFICATE_VERIFY_FAILED" in seen:
        text = "its certificate is not trusted"
        step = "set HEADGATE_CA_FILE to the PEM file of its authority"
        return _unreached(address, text, f"{step}; of a context: {_CONTEXT} --ca-file FILE")
    there, next_step = advice(address)
    return _unreached(address, there or _short(seen), next_step or WAIT)


def _unreached(address: str, text: str, next_step: str) -> RemoteError:
    return RemoteError(f"{address} cannot be reached: {text}\n  next: {next_step}")


def _short(seen: str) -> str:
    """gRPC's text without what it begins each with."""
    _, found, rest = seen.partition("last error: ")
    return rest.partition(": ")[2] if found and ": " in rest else seen


def _first_bytes(host: str, port: int) -> bytes:
    """What a server says to a request of HTTP/1.1; empty: it has closed, or said nothing."""
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
    """The protocol that the server chooses; None: it has no TLS."""
    try:
        with _over_tls(host, port) as connection:
            return connection.selected_alpn_protocol() or "http/1.1"
    except OSError:
        return None


def _wants_certificate(host: str, port: int) -> bool:
    """Whether a server with TLS hangs up on a client that has none and has asked nothing yet. One
    that takes it waits for a request, or says hello."""
    try:
        with _over_tls(host, port) as connection:
            return connection.recv(1) == b""
    except ssl.SSLError as error:
        return "certificate" in str(error).lower()
    except OSError:
        return False


@contextlib.contextmanager
def _over_tls(host: str, port: int) -> Iterator[ssl.SSLSocket]:
    """Nothing is sent over it, so the server's certificate does not matter."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection((host, port), LOOK_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        yield connection
