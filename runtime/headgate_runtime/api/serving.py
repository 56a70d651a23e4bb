"""Serves the gRPC API. gRPC is loaded only if there is something to serve."""

import contextlib
import ipaddress
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.herder.messages import WorkerView
from headgate_runtime.api.worker_backend import WorkerBackend
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.worker.config import WorkerConfig, herder_settings

if TYPE_CHECKING:
    from grpc import ChannelCredentials

    from headgate_grpc.internal.service import WorkerService
    from headgate_grpc.listeners import Listener
    from headgate_grpc.server import GrpcServer
    from headgate_grpc.tls import Tls

log = logging.getLogger(__name__)

WORKERS_KEY: Final = "headgate.grpc.internal.ca.file"
SOCKET: Final = "grpc.sock"
"""Name of the socket in the data folder of `headgate up`."""


class UnservedError(Exception):
    """The API cannot be served. The message is for the user."""


def serve_worker(
    settings: WorkerSettings,
    backend: WorkerBackend,
    stack: contextlib.ExitStack,
    internal: "WorkerService | None" = None,
) -> "GrpcServer":
    """Return a server that listens where `settings` say. It is closed with `stack`. `internal`
    answers the calls of other workers on it.

    Raises:
        UnservedError: it cannot listen, or the extra is not installed.
    """
    try:
        from headgate_grpc.listeners import ListenError, listeners_of
        from headgate_grpc.server import GrpcServer
    except ImportError as error:
        raise UnservedError(
            f"headgate.grpc.listeners: {error}; install the extra: pip install 'headgate[grpc]'"
        ) from None
    try:
        listeners = listeners_of(settings["headgate.grpc.listeners"])
    except ValueError as error:
        raise UnservedError(f"headgate.grpc.listeners: {error}") from None
    try:
        more = () if internal is None else (internal.handler(),)
        server = GrpcServer(listeners, backend, _tls(settings, listeners), more)
        server.start()
    except ValueError as error:
        raise UnservedError(str(error)) from None
    except ListenError as error:
        raise UnservedError(str(error.strerror)) from None
    stack.callback(server.close)
    return server


def internal_address(settings: WorkerSettings, host: str, bound: "Sequence[Listener]") -> str:
    """Return the address under which other workers call this one by gRPC: ``host:port``, or with
    TLS ``grpcs://host:port``.

    Args:
        host: the host under which they otherwise reach this worker.
        bound: where the server listens.

    Raises:
        UnservedError: no listener can take such calls.
    """
    tls = bool(settings[WORKERS_KEY])
    scheme = "grpcs" if tls else "grpc"
    head = "grpcs://" if tls else ""
    if settings["headgate.grpc.advertised"]:
        return head + str(settings["headgate.grpc.advertised"])
    usable = [each for each in bound if each.path is None and each.tls is tls]
    if not usable:
        why = f"{WORKERS_KEY} is set" if tls else f"{WORKERS_KEY} is not set"
        raise UnservedError(
            f"headgate.grpc.internal is true and {why}, but headgate.grpc.listeners has no "
            f"{scheme}://HOST:PORT, at which other workers could call this one"
        )
    reached = [each for each in usable if _may_reach(host, each.host)]
    if not reached:
        raise UnservedError(
            f"headgate.grpc.internal is true, and other workers know this one as {host}, which "
            f"reaches none of its listeners {', '.join(map(str, usable))}. Give "
            f"headgate.grpc.listeners one that {host} reaches, or set headgate.grpc.advertised"
        )
    port = reached[0].port
    return head + (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def internal_credentials(settings: WorkerSettings) -> "ChannelCredentials | None":
    """Return the credentials with which this worker calls others, or None without TLS.

    Raises:
        UnservedError: a file cannot be used.
    """
    if not settings[WORKERS_KEY]:
        return None
    from headgate_grpc.tls import CERTIFICATE_KEY, PRIVATE_KEY, Tls

    try:
        tls = Tls.read(settings[CERTIFICATE_KEY] or "", settings[PRIVATE_KEY] or "")
        return tls.calling(settings[WORKERS_KEY])
    except ValueError as error:
        raise UnservedError(str(error)) from None


def _may_reach(host: str, bound: str) -> bool:
    """Return whether a listener bound to `bound` may be reachable at `host`."""
    return bound in ("0.0.0.0", "::") or _is_loopback(host) == _is_loopback(bound)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _tls(settings: WorkerSettings, listeners: "Sequence[Listener]") -> "Tls | None":
    """Return the TLS files of the listeners. Raises ValueError: a file cannot be used, or nothing
    would use it."""
    from headgate_grpc.tls import CERTIFICATE_KEY, CLIENTS_KEY, PRIVATE_KEY, Tls

    keys = (CERTIFICATE_KEY, PRIVATE_KEY, CLIENTS_KEY)
    certificate, key, clients = (settings[each] or "" for each in keys)
    if any(each.tls for each in listeners):
        return Tls.read(certificate, key, clients)
    for each in keys:
        if settings[each]:
            raise ValueError(
                f"{each} is set, but headgate.grpc.listeners has no listener with TLS; write it as "
                "grpcs://HOST:PORT"
            )
    return None


def serve_up(
    data: Path,
    settings: WorkerSettings,
    urls: Callable[[], Sequence[str]],
    workers: Callable[[], Sequence[tuple[str, str, WorkerView | None]]],
    warn: Callable[[str], None],
    stack: contextlib.ExitStack,
) -> Callable[[], None]:
    """Serve the cluster of a `headgate up` on a socket in its data folder, until `stack` is closed.
    If that is impossible, `warn` is called, and the pipeline runs without it.

    Returns:
        A function to call when a stop begins. Health then says so, and new calls are refused.
    """
    try:
        from headgate_grpc.listeners import Listener, ListenError
        from headgate_grpc.server import GrpcServer
    except ImportError:
        log.debug("the extra grpc is not installed: nothing is served")
        return not_served
    from headgate_runtime.api.up_backend import UpBackend
    from headgate_runtime.up import folder  # a worker serves, too, and loads nothing of `up`

    transport = folder.open_log(data, warn)
    stack.callback(transport.close)
    config = WorkerConfig("headgate up", "", folder.transport_settings(data))
    backend = UpBackend(transport, herder_settings(config, settings), settings, urls, workers)
    server = GrpcServer((Listener(path=data / SOCKET),), backend)
    try:
        server.start()
    except ListenError as error:
        warn(f"this cluster cannot be operated by other headgate commands: {error.strerror}")
        return not_served
    stack.callback(backend.close)
    stack.callback(server.close)
    return server.stopping


def not_served() -> None:
    """Do nothing at a stop: there is no server."""
