"""The address of the API: a given one, HEADGATE_URL, or the `headgate up` of a folder."""

import contextlib
import getpass
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grpc

from headgate_grpc.unix_socket import target_of

VARIABLE: Final = "HEADGATE_URL"
CA_VARIABLE: Final = "HEADGATE_CA_FILE"
CERTIFICATE_VARIABLE: Final = "HEADGATE_CERTIFICATE_FILE"
KEY_VARIABLE: Final = "HEADGATE_KEY_FILE"
SOCKET: Final = "grpc.sock"
"""Name of the socket in the data folder of a `headgate up`."""
OPTIONS: Final = (
    # A call without an answer may have been executed, so gRPC must not send it twice by itself.
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC applies this timeout to every ping. Its default is a minute.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


def options(address: str) -> tuple[tuple[str, int | str], ...]:
    """Return the options of a channel to `address`. On a Unix socket the user agent names the
    client's user and process, for the worker's log."""
    if not address.startswith("unix:"):
        return OPTIONS
    return (*OPTIONS, ("grpc.primary_user_agent", f"headgate ({_whoami()})"))


def _whoami() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # without a name in the table of users
        user = f"user {os.getuid()}"
    plain = "".join(each if each.isascii() and each.isalnum() else "_" for each in user)
    return f"{plain}, process {os.getpid()}"


def sockets_in(folder: Path) -> list[Path]:
    """Return the sockets of each `headgate up` whose data folder is `folder` or directly in it."""
    found = [folder / SOCKET, *sorted(folder.glob(f"*/{SOCKET}"))]
    return [path for path in found if path.is_socket()]


def find_address(folder: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return HEADGATE_URL, or the socket of the only `headgate up` in `folder`.

    Args:
        folder: None: the current folder.
        environment: None: the process's variables.

    Raises:
        LookupError: there is no `headgate up`, or more than one.
    """
    environment = os.environ if environment is None else environment
    if environment.get(VARIABLE):
        return environment[VARIABLE]
    where = folder or Path()
    found = sockets_in(where)
    if len(found) == 1:
        return f"unix:{found[0]}"
    if not found:
        raise LookupError(
            f"no headgate up runs in {where.absolute()} and {VARIABLE} is not set; give an address "
            "such as unix:state/grpc.sock or grpc://host:8085"
        )
    names = ", ".join(f"unix:{path}" for path in found)
    raise LookupError(f"several headgate up run in {where.absolute()}; give one of {names}")


def has_tls(address: str) -> bool:
    return address.startswith("grpcs://")


def credentials(environment: Mapping[str, str] | None = None) -> grpc.ChannelCredentials:
    """Return the credentials of a client of a ``grpcs://`` address.

    They are PEM files that variables name: the trusted authorities in `CA_VARIABLE` (unset: those
    that gRPC trusts), and the client's own certificate and key in `CERTIFICATE_VARIABLE` and
    `KEY_VARIABLE`.

    Raises:
        ValueError: a file cannot be read, or only one of the last two is given.
    """
    environment = os.environ if environment is None else environment
    given: list[bytes | None] = []
    for variable in (CA_VARIABLE, KEY_VARIABLE, CERTIFICATE_VARIABLE):
        path = environment.get(variable)
        try:
            given.append(Path(path).read_bytes() if path else None)
        except OSError as error:
            raise ValueError(f"{variable}: {path} cannot be read: {error.strerror}") from None
    authorities, key, certificate = given
    if (key is None) != (certificate is None):
        raise ValueError(f"{CERTIFICATE_VARIABLE} and {KEY_VARIABLE} go together; give both")
    return grpc.ssl_channel_credentials(authorities, key, certificate)


def target(address: str) -> "contextlib.AbstractContextManager[str]":
    """Return gRPC's target for `address`, ``grpc://host:port``, ``grpcs://host:port`` or
    ``unix:path``, as a context manager. The target is valid while the context is open.

    Raises:
        ValueError: it is no such address.
    """
    scheme, _, rest = address.partition(":")
    if scheme == "unix" and rest:
        return target_of(Path(rest.removeprefix("//")))
    if (
        scheme in ("grpc", "grpcs")
        and rest.startswith("//")
        and rest.rpartition(":")[2].isdecimal()
    ):
        return contextlib.nullcontext(f"dns:///{rest.removeprefix('//')}")
    raise ValueError(
        f"{address!r} is no address of the gRPC API; expected grpc://host:port, "
        "grpcs://host:port or unix:path"
    )
