"""The HTTP server, on a thread of its own. It translates between sockets and `HttpRequest`,
`HttpResponse`."""

import asyncio
import logging
import math
import re
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, cast

import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from headgate_rest.answer_headers import answer_headers, dated
from headgate_rest.connections import Connection, Connections, ListeningSocket
from headgate_rest.front import Front, Health
from headgate_rest.http import HttpRequest, HttpResponse, Refusal
from headgate_rest.http_protocol import BoundedProtocol, Turns
from headgate_rest.memory import keep_little
from headgate_rest.settings import EVERYWHERE, HeaderRule, Listener, RestSettings, TlsSettings
from headgate_rest.translate import RETRY_LATER

log = logging.getLogger(__name__)

START_S: Final = 30
STOP_S: Final = 2
BACKLOG: Final = 1_024
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")

Handler: TypeAlias = Callable[[HttpRequest, str, asyncio.Future[None]], Awaitable[HttpResponse]]
"""Answers a request. The second argument is the client's base URL (``http://host:port``), or "" if
its host is none of this server's names. The third is done once the client has gone."""
BodyLimit: TypeAlias = Callable[[str, str], int]
"""Returns the most bytes of the body of a request with this method and path."""


@dataclass(frozen=True, slots=True)
class ListenerGroup:
    """Listeners that share a handler and TLS settings."""

    listeners: tuple[Listener, ...]
    handler: Handler
    tls: TlsSettings
    key: str = "listeners"
    """The worker's property that names the listeners."""
    body_limit: BodyLimit | None = None
    """Limit of bodies. None: `Limits.body_bytes` for every request."""
    answers_health: bool = True


class ListenError(OSError):
    """A listener cannot be opened: its address is in use or not this machine's, or its certificate
    cannot be used."""

    def __init__(self, key: str, error: OSError) -> None:
        super().__init__(error.errno, error.strerror)
        self.key = key
        """The worker's property that names the listener."""


class HttpServer:
    """The server. It listens from its construction on, and answers from `start` on."""

    def __init__(
        self,
        settings: RestSettings,
        listener_groups: Sequence[ListenerGroup],
        health: Health | None = None,
    ) -> None:
        """Open the listeners.

        Args:
            health: answers `/health` in the front process (`headgate_rest.front`). None: there is
                no such process.

        Raises:
            ListenError: a listener cannot be opened. Then none of them is open.
        """
        self._settings = settings
        self._health = health
        self._front: Front | None = None
        self._connections = Connections(settings.limits)
        self._bound: list[tuple[ListenerGroup, Listener, ListeningSocket]] = []
        self._servers: list[uvicorn.Server] = []
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)
        self._failure: BaseException | None = None
        self._contexts: dict[int, ssl.SSLContext] = {}
        for listener_group in listener_groups:
            try:
                self._open(listener_group)
            except OSError as error:
                self._close_sockets()
                raise ListenError(listener_group.key, error) from error

    def _open(self, listener_group: ListenerGroup) -> None:
        if listener_group.tls.certificate:
            self._contexts[id(listener_group)] = _server_context(listener_group.tls)
        for listener in listener_group.listeners:
            self._bound.append((listener_group, listener, _bind(listener)))

    @property
    def ports(self) -> dict[Listener, int]:
        """The port of each listener. If two are equal, that of the first one."""
        ports: dict[Listener, int] = {}
        for _, listener, bound in self._bound:
            ports.setdefault(listener, bound.getsockname()[1])
        return ports

    def start(self) -> None:
        """Start the thread and wait until requests are answered.

        Raises:
            RuntimeError: the server did not start in time.
        """
        keep_little()
        self._sockets = self._opened()
        for sock, (listener_group, listener, _) in zip(self._sockets, self._bound, strict=True):
            sock.connections = self._connections
            app = _App(
                listener_group, self._settings.headers, self._connections, _names(self._settings)
            )
            context = self._contexts[id(listener_group)] if listener.scheme == "https" else None
            config = _uvicorn_config(_with_cors(app, self._settings), context, self._connections)
            self._servers.append(uvicorn.Server(config))
        self._thread.start()
        until = time.monotonic() + START_S
        while not all(server.started for server in self._servers):
            if self._failure is not None or not self._thread.is_alive():
                raise RuntimeError("the REST server did not start") from self._failure
            if time.monotonic() > until:
                raise RuntimeError(f"the REST server did not start within {START_S} s")
            time.sleep(0.002)

    def _opened(self) -> Sequence[ListeningSocket]:
        """Return the sockets that connections come from: the listening ones, or those of the front
        process, which is started here."""
        bound = [sock for _, _, sock in self._bound]
        if not self._settings.front_process or self._health is None:
            return bound
        listeners = [
            (sock, listener.scheme == "http", group.answers_health)
            for group, listener, sock in self._bound
        ]
        try:
            self._front = Front(listeners, self._connections, self._settings.headers, self._health)
        except OSError as error:
            log.warning(
                "no process can be started that accepts REST connections (%s): the worker accepts "
                "them itself, and answers /health later while it is busy",
                error,
            )
            return bound
        return self._front.sockets

    def close(self) -> None:
        """End the server. Answers under way may take `STOP_S` more."""
        if self._front is not None:
            self._front.stop()
        for server in self._servers:
            server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_S + 5)
        self._close_sockets()
        if self._front is not None:
            self._front.close()
        self._connections.close()

    def _close_sockets(self) -> None:
        for _, _, bound in self._bound:
            bound.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            log.exception("the REST server has ended")
            raise

    async def _serve(self) -> None:
        more = None if self._front is None else self._front.look
        look = asyncio.ensure_future(self._connections.look(more))
        await asyncio.gather(
            *(
                server.serve([sock])
                for server, sock in zip(self._servers, self._sockets, strict=True)
            )
        )
        look.cancel()


def own_address() -> str:
    """Return this machine's address, for the URL of listeners on all addresses."""
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError:
        return name


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context for calls to other workers, with the trusted certificates and this
    worker's own, in case it is asked for."""
    context = ssl.create_default_context(cafile=tls.trusted or None)
    if tls.certificate:
        context.load_cert_chain(tls.certificate, password=tls.password)
    return context


def _bind(listener: Listener) -> ListeningSocket:
    everywhere = listener.host in EVERYWHERE
    both = everywhere and socket.has_dualstack_ipv6()
    try:
        host = ("::" if both else "0.0.0.0") if everywhere else listener.host
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # The protocol must be given as TCP. Only then does asyncio turn Nagle's algorithm off for
        # accepted connections. With it every answer waits 40 ms for an acknowledgement.
        bound = ListeningSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
            bound.bind(address)
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        where = f"{listener.scheme}://{listener.host}:{listener.port}"
        raise OSError(error.errno, f"cannot listen on {where}: {error}") from error
    return bound


def _server_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context of a listener.

    Raises:
        OSError: a file does not exist or cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, password=tls.password)
        if tls.trusted:
            context.load_verify_locations(tls.trusted)
    except OSError as error:
        files = " and ".join(filter(None, (tls.certificate, tls.trusted)))
        text = f"cannot use {files} (ssl.keystore.location, ssl.truststore.location): {error}"
        raise OSError(error.errno, text) from error
    context.verify_mode = {
        "none": ssl.CERT_NONE,
        "requested": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }[tls.client_auth]
    return context


def _uvicorn_config(
    app: ASGIApp, context: ssl.SSLContext | None, connections: Connections
) -> uvicorn.Config:
    limits = connections.limits
    return uvicorn.Config(
        app,
        http=cast(type[asyncio.Protocol], partial(BoundedProtocol, connections, Turns())),
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=math.ceil(limits.read_timeout_s),
        timeout_graceful_shutdown=STOP_S,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
    )


def _with_cors(app: ASGIApp, settings: RestSettings) -> ASGIApp:
    """Wrap `app` so that it sends CORS headers to pages of the allowed origins. As in Jetty, an
    origin may have ``*`` for any part. Source: `access.control.allow.origin`, `.methods`."""
    origins = [each.strip() for each in settings.allow_origin.split(",") if each.strip()]
    if not origins:
        return app
    patterns = [re.escape(each).replace(r"\*", "[^/]*") for each in origins if each != "*"]
    methods = [each.strip() for each in settings.allow_methods.split(",") if each.strip()]
    return CORSMiddleware(
        app,
        allow_origins=["*"] if "*" in origins else [],
        allow_origin_regex="|".join(patterns) or None,
        allow_methods=methods or ["GET", "POST", "HEAD"],
        allow_headers=["X-Requested-With", "Content-Type", "Accept", "Origin"],
    )


_HOST: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_ABSOLUTE: Final = re.compile(r"https?://([^/?#@]*)(/.*)?", re.IGNORECASE | re.DOTALL)


def _address(client: tuple[str, int] | None) -> str:
    if client is None:
        return ""
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _target(target: str) -> tuple[str, str | None]:
    """Return the path of a request's target, and its host if the target has absolute form, as for a
    proxy. Then the `Host` header is ignored (RFC 9112, 3.2.2)."""
    found = _ABSOLUTE.fullmatch(target)
    return (target, None) if found is None else (found[2] or "/", found[1])


def _names(settings: RestSettings) -> frozenset[str]:
    """Return the host names and addresses by which clients may know this server."""
    own = {listener.host.lower() for listener in settings.listeners} - set(EVERYWHERE)
    advertised = {settings.advertised_host.lower()} if settings.advertised_host else set[str]()
    return frozenset({*own, *advertised, *LOCAL_NAMES, socket.gethostname().lower()})


class _App:
    """The ASGI application."""

    def __init__(
        self,
        group: ListenerGroup,
        rules: Sequence[HeaderRule],
        connections: Connections,
        names: Collection[str],
    ) -> None:
        """
        Args:
            names: host names and addresses by which clients may know this server.
        """
        self._handler = group.handler
        self._body_limit = group.body_limit
        self._rules = rules
        self._names = names
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        connection = scope["state"]["connection"]
        try:
            answer = await self._answer(scope, receive, connection)
            if answer is not None:
                await self._send(send, answer)
        finally:
            self._connections.release(connection)

    async def _answer(
        self, scope: Scope, receive: Receive, connection: Connection
    ) -> HttpResponse | None:
        """Return the answer to a request. None: the client has gone."""
        path, host = _target(scope["raw_path"].decode("ascii", "replace"))
        try:
            headers = self._headers(scope)
            body = await self._body(scope["method"], path, headers, receive, connection)
        except Refusal as refusal:
            return refusal.response()
        if body is None:
            return None
        query = scope["query_string"].decode("ascii", "replace")
        client = _address(scope.get("client"))
        asked = HttpRequest(scope["method"], path, query, body, headers, client)
        base_url = self._base_url(scope, headers.get("host", "") if host is None else host)
        gone = asyncio.ensure_future(_gone(receive))
        try:
            return await self._handler(asked, base_url, gone)
        except ConnectionAbortedError:
            return None
        finally:
            gone.cancel()

    def _base_url(self, scope: Scope, host: str) -> str:
        """Return the base URL that the client uses. "" if its host is none of this server's names:
        a foreign name would be echoed in `Location`, and caches would send other clients there."""
        found = _HOST.fullmatch(host)
        if found is None:
            return ""
        near, _ = scope["server"] or ("", None)
        names = {*self._names, near, f"[{near}]"}
        return f"{scope['scheme']}://{host}" if found[1].lower() in names else ""

    def _headers(self, scope: Scope) -> dict[str, str]:
        """Return the headers by name in lower case. Of several with one name, the first counts.

        Raises:
            Refusal: 431, there are too many headers, or too many bytes of them.
        """
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        limits = self._connections.limits
        if len(raw) > limits.headers:
            raise Refusal(
                431,
                f"The request has {len(raw)} headers, more than {limits.headers} "
                "(headgate.rest.header.max.count)",
            )
        size = sum(len(name) + len(value) + 4 for name, value in raw)
        size += len(scope["raw_path"]) + len(scope["query_string"])
        if size > limits.header_bytes:
            raise Refusal(
                431,
                f"The request line and the headers are longer than {limits.header_bytes} bytes "
                "(headgate.rest.header.max.bytes)",
            )
        headers: dict[str, str] = {}
        for name, value in raw:
            headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
        return headers

    async def _body(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        receive: Receive,
        connection: Connection,
    ) -> bytes | None:
        """Read a request's body. None: the client has gone.

        Raises:
            Refusal: 413, the body is too long, or its announced length is. 503, there is no room
                for it.
        """
        limit = self._connections.limits.body_bytes
        if self._body_limit is not None:
            limit = self._body_limit(method, path)
        announced = headers.get("content-length", "0")
        if "transfer-encoding" not in headers and int(announced) > limit:
            raise _too_long(f"{announced} bytes", limit)
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            part: bytes = message["body"]
            if len(body) + len(part) > limit:
                raise _too_long("more", limit)
            if not self._connections.hold(connection, len(part)):
                text = "The server holds as many bytes of bodies as it may; ask again"
                raise Refusal(503, text, RETRY_LATER)
            body += part
            if not message["more_body"]:
                return bytes(body)
        return None

    async def _send(self, send: Send, answer: HttpResponse) -> None:
        headers = dated(answer_headers(answer, self._rules))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


def _too_long(seen: str, limit: int) -> Refusal:
    text = f"The body has {seen}; at most {limit} are read (headgate.rest.body.max.bytes)"
    return Refusal(413, text)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
