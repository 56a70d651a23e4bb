"""The cluster that a command is about: --url, HEADGATE_URL, the `headgate up` of this folder, or
the current context."""

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headgate.connector.secret_keys import without_login
from headgate.errors import MissingExtraError
from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.remote import contexts
from headgate_runtime.remote.remote import Remote, RemoteError

VARIABLE: Final = "HEADGATE_URL"
SOCKET: Final = "grpc.sock"
LOCK: Final = "headgate.lock"
CURRENT: Final = "the current context"
_FORMS: Final = (
    "give http://HOST:PORT (REST, also of a Connect worker in Java), grpc://HOST:PORT, or "
    "unix:PATH; https:// and grpcs:// with TLS"
)
SCHEMES: Final = ("http://", "https://", "grpc://", "grpcs://", "unix:")


@dataclass(frozen=True, slots=True)
class Access:
    """A cluster, how it is reached, and which setting named it."""

    url: str
    source: str
    variables: Mapping[str, str]
    """Files of certificates and the login, in the form of environment variables."""
    context: str = ""
    """Name of the context. Empty: there is none."""


def found(url: str | None) -> Access:
    """Return the cluster that is meant. `url` is an address, the name of a context, or empty.

    Raises:
        RemoteError: there is none, or it is not clear which one.
    """
    given = url or os.environ.get(VARIABLE) or ""
    source = VARIABLE if given == os.environ.get(VARIABLE) else "--url"
    if not given:
        here = _found_here()
        if here is not None:
            return Access(here, "the headgate up of this folder", os.environ)
        given = _current()
        source = CURRENT
    if contexts.is_name(given):
        known = contexts.read()
        if given not in known.by_name and ("." in given or given == "localhost"):
            raise no_address(given)
        context = known.named(given)
        return Access(context.url, source, context.variables(), given)
    return Access(given, source, os.environ)


def no_address(text: str) -> RemoteError:
    return RemoteError(
        f"{text!r} is no address of a cluster, nor the name of a context\n  next: {_FORMS}; "
        "headgate context list shows the contexts",
        EXIT_USAGE,
    )


def refuse_wrong(url: str) -> None:
    """Check an address. Raises RemoteError: `url` is no address, or has a user or a password in it,
    which would be shown and logged."""
    if not url.startswith(SCHEMES):
        raise no_address(url)
    if url.startswith("unix:"):
        return
    try:
        there = urlsplit(url)
        known = bool(there.hostname) and there.port != 0 and url.isascii()
    except ValueError:  # half an IPv6 address, or a port that is no number
        known = False
    if not known:
        raise no_address(without_login(url))
    if "@" in there.netloc:
        shown = url.partition("://")[0] + "://" + url.rpartition("@")[2]
        raise RemoteError(
            f"the address has a login in it, and addresses are shown\n  next: give {shown} with "
            "HEADGATE_USERNAME and HEADGATE_PASSWORD, or headgate context set NAME --username USER",
            EXIT_USAGE,
        )


def open_remote(url: str | None) -> Remote:
    """Return the cluster that is meant.

    Raises:
        RemoteError: there is none, or it is not clear which one.
        MissingExtraError: the packages that speak its protocol are not installed.
    """
    return opened(found(url))


def opened(access: Access) -> Remote:
    """Return the cluster that `access` names. Raises as `open_remote` does."""
    address = access.url
    refuse_wrong(address)
    if address.startswith("http"):
        try:
            from headgate_runtime.remote.over_rest import RestRemote
        except ImportError as error:
            raise _missing(error, "rest") from None
        return RestRemote(address, access.variables)
    # Without this, gRPC's C code prints lines of its own between ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from headgate_runtime.remote.over_grpc import GrpcRemote
    except ImportError as error:
        raise _missing(error, "grpc") from None
    return GrpcRemote(address, access.variables)


def _found_here() -> str | None:
    """Return the address of the `headgate up` of this folder, or None if the folder has none."""
    here = Path()
    there = [here / SOCKET, *sorted(here.glob(f"*/{SOCKET}"))]
    sockets = [path for path in there if path.is_socket()]
    if len(sockets) == 1:
        return f"unix:{sockets[0]}"
    if sockets:
        shown = ", ".join(f"--url unix:{path}" for path in sockets)
        raise RemoteError(
            f"several headgate up run in {here.absolute()}\n  next: say which one: {shown}",
            EXIT_USAGE,
        )
    folders = sorted(path.parent for path in (*here.glob(LOCK), *here.glob(f"*/{LOCK}")))
    for folder in folders:
        refuse_unserved(folder)
    current = contexts.read().current
    if folders and current:
        # A user who believes that it runs must not change another cluster instead.
        raise RemoteError(
            f"{folders[0].absolute()} is the data folder of a headgate up that does not run\n"
            f"  next: start it, or say --context {current} for the current context",
            EXIT_USAGE,
        )
    return None


def _current() -> str:
    """Return the name of the current context.

    Raises:
        RemoteError: there is none.
    """
    known = contexts.read()
    if known.current:
        return known.current
    if known.by_name:
        raise RemoteError(
            f"no headgate up runs in {Path().absolute()}, and no context is current\n"
            f"  next: headgate context use NAME; there are {', '.join(sorted(known.by_name))}",
            EXIT_USAGE,
        )
    raise RemoteError(
        f"no headgate up runs in {Path().absolute()}\n"
        "  next: go to the folder of its pipeline file, start one (headgate up PIPELINE.toml), or "
        "give an address: --url grpc://HOST:PORT, --url http://HOST:8083, or HEADGATE_URL; "
        "headgate context set NAME --url ADDRESS keeps it",
        EXIT_USAGE,
    )


def refuse_unserved(data: Path) -> None:
    """Check a data folder. Raises RemoteError: a `headgate up` runs on it, and has no socket
    there."""
    from headgate_embedded import is_held

    if not is_held(data):
        return
    if not _has_grpc():
        again = f"{MissingExtraError('grpc')}\n  next: install it, and start headgate up anew"
        raise RemoteError(f"headgate up runs on {data.absolute()}, but {again}", EXIT_USAGE)
    raise RemoteError(
        f"headgate up runs on {data.absolute()}, but has no {SOCKET} there\n  next: try again if "
        "it has just started; started without headgate[grpc], it must be started anew",
        EXIT_USAGE,
    )


def _has_grpc() -> bool:
    return importlib.util.find_spec("grpc") is not None


def _missing(error: ImportError, extra: str) -> Exception:
    """Return what to raise for a package of `extra` that is not installed. Errors of other modules
    stay."""
    return MissingExtraError(extra) if isinstance(error, ModuleNotFoundError) else error
