"""Which cluster a command is about: --url, HEADGATE_URL, or the `headgate up` of this folder."""

import importlib.util
import os
from pathlib import Path
from typing import Final

from headgate.errors import MissingExtraError
from headgate_runtime.remote.remote import Remote, RemoteError

EXIT_USAGE: Final = 2
VARIABLE: Final = "HEADGATE_URL"
SOCKET: Final = "grpc.sock"
LOCK: Final = "headgate.lock"
_FORMS: Final = (
    "give http://HOST:PORT (REST, also of a Connect worker in Java), grpc://HOST:PORT, or "
    "unix:PATH; https:// and grpcs:// with TLS"
)


def open_remote(url: str | None) -> Remote:
    """The cluster that is meant.

    Raises:
        RemoteError: there is none, or it is not clear which one.
        MissingExtraError: the packages that speak its protocol are not installed.
    """
    address = url or os.environ.get(VARIABLE) or _found_here()
    if address.startswith(("http://", "https://")):
        try:
            from headgate_runtime.remote.over_rest import RestRemote
        except ImportError as error:
            raise _missing(error, "rest") from None
        return RestRemote(address)
    if not address.startswith(("grpc://", "grpcs://", "unix:")):
        raise RemoteError(f"{address!r} is no address of a cluster\n  next: {_FORMS}", EXIT_USAGE)
    # Without this, gRPC's C code writes lines of its own between ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from headgate_runtime.remote.over_grpc import GrpcRemote
    except ImportError as error:
        raise _missing(error, "grpc") from None
    return GrpcRemote(address)


def _found_here() -> str:
    here = Path()
    found = [here / SOCKET, *sorted(here.glob(f"*/{SOCKET}"))]
    sockets = [path for path in found if path.is_socket()]
    if len(sockets) == 1:
        return f"unix:{sockets[0]}"
    if sockets:
        shown = ", ".join(f"--url unix:{path}" for path in sockets)
        raise RemoteError(
            f"several headgate up run in {here.absolute()}\n  next: say which one: {shown}",
            EXIT_USAGE,
        )
    for folder in sorted(path.parent for path in (*here.glob(LOCK), *here.glob(f"*/{LOCK}"))):
        refuse_unserved(folder)
    raise RemoteError(
        f"no headgate up runs in {here.absolute()}\n"
        "  next: go to the folder of its pipeline file, start one (headgate up PIPELINE.toml), or "
        "give an address: --url grpc://HOST:PORT, --url http://HOST:8083, or HEADGATE_URL",
        EXIT_USAGE,
    )


def refuse_unserved(data: Path) -> None:
    """Raises RemoteError: a `headgate up` runs on this data folder, and has no socket there."""
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
    """What to raise where a package of `extra` is not installed; other modules keep their error."""
    return MissingExtraError(extra) if isinstance(error, ModuleNotFoundError) else error
