"""The REST API of one worker and its calls to others: a server, a client, and the `Peers` port."""

import asyncio
import contextlib
import gzip
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar, cast

from headgate.herder.messages import (
    Call,
    DescribeWorker,
    ErrorKind,
    Failure,
    Result,
)
from headgate.herder.session_keys import KeyRing
from headgate.ports import IncomingCall
from headgate_rest import side_requests, translate
from headgate_rest.front import Health
from headgate_rest.heavy_thread import LIGHT_BYTES, HeavyThread, least_size
from headgate_rest.http import (
    HttpRequest,
    HttpResponse,
    Refusal,
    error_response,
    path_segments,
    takes_gzip,
)
from headgate_rest.open_calls import OPEN_MAX, OpenCalls, TooManyError
from headgate_rest.patient_json import marks_in, values_in
from headgate_rest.peer import TIMEOUT_HEADER, PeerClient
from headgate_rest.plugin_calls import LateError, PluginCalls
from headgate_rest.server import HttpServer, ListenerGroup, own_address
from headgate_rest.settings import RestSettings, advertised_url
from headgate_rest.side_requests import Json, Loggers, Plugins, PluginsHangError, SideRequests
from headgate_rest.signature import verify

log = logging.getLogger(__name__)

T = TypeVar("T")

HEALTH_TIMEOUT_MS: Final = 10_000
"""How long Connect waits for its herder before it calls itself unhealthy."""
HUNG: Final = f"Request timed out. The worker has not answered within {HEALTH_TIMEOUT_MS} ms."
METRICS_TIMEOUT_MS: Final = 10_000
"""How long Prometheus waits for a scrape, by default."""
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
GZIP_LEVEL: Final = 1
"""Metrics repeat their names, so even the lowest level shrinks them to a 25th."""
GRACE_MS: Final = 1_000
"""How long the server waits after a call's deadline before it answers itself. The herder answers at
the deadline, and knows better why the call is late."""
_MS_DIGITS: Final = 12
"""Most digits that are read. Python refuses to convert thousands of digits."""
_ALWAYS: Final = (
    translate.ShowMethods,
    translate.ListLoggers,
    translate.ShowLogger,
    translate.SetWorkerLogger,
)
"""Requests that are answered before the herder has started."""
CLOSED: Final = Failure(ErrorKind.NOT_READY, "The worker is shutting down; ask another one")
ADMIN_KEY: Final = "admin.listeners"


def try_to_listen(settings: RestSettings) -> None:
    """Open the listeners that `RestService` would open, and close them again.

    Raises:
        ListenError: as `RestService` does, with the same message.
    """
    groups = [ListenerGroup(settings.listeners, _nobody, settings.tls)]
    if settings.admin_listeners:
        groups.append(
            ListenerGroup(settings.admin_listeners, _nobody, settings.admin_tls, ADMIN_KEY)
        )
    HttpServer(settings, groups).close()


def url_of(settings: RestSettings) -> str:
    """Return the URL of a worker with these settings. Its listeners must not have port 0."""
    ports = {listener: listener.port for listener in settings.listeners}
    return advertised_url(settings, ports, own_address())


async def _nobody(request: HttpRequest, base_url: str, gone: asyncio.Future[None]) -> HttpResponse:
    raise RuntimeError("nothing is served")


class RestService:
    """The REST server of one worker, and its client of other workers.

    It listens from its construction on, so that its `url` is known before the worker is made. It
    answers 503 from `start` on, and requests from `ready` on.

    Args:
        root: the body of ``GET /``: version, commit, kafka_cluster_id.
        session_keys: returns the keys with which internal calls are signed and verified.
        sessioned: returns whether internal calls are signed, by the group's protocol.
        error_text: returns why the worker is giving up, for `/health`. Empty: it is not.
        metrics: makes the text of ``/metrics`` from the worker's own view (`DescribeWorker`). None:
            there are no metrics.
        arrived: called on the server's thread when `incoming` has something new.
    """

    def __init__(
        self,
        settings: RestSettings,
        *,
        root: Json,
        plugins: Plugins,
        loggers: Loggers,
        session_keys: Callable[[], KeyRing],
        sessioned: Callable[[], bool],
        error_text: Callable[[], str] = lambda: "",
        metrics: Callable[[Json], bytes] | None = None,
        arrived: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._side_requests = SideRequests(root, plugins, loggers)
        self._plugin_calls = PluginCalls(plugins)
        self._heavy = HeavyThread()
        self._session_keys = session_keys
        self._error_text = error_text
        self._metrics = metrics
        self._sessioned = sessioned
        self._open = OpenCalls(arrived)
        self._ready = False
        self._closing = False
        self._alone = False
        everything = settings.admin_listeners is None
        first = self._everything if everything else self._public
        groups = [
            ListenerGroup(settings.listeners, first, settings.tls, body_limit=self._body_limit)
        ]
        if settings.admin_listeners:
            groups.append(
                ListenerGroup(
                    settings.admin_listeners,
                    self._admin,
                    settings.admin_tls,
                    ADMIN_KEY,
                    answers_health=False,
                )
            )
        hung = side_requests.health(500, "unhealthy", side_requests.UNHEALTHY + HUNG)
        self._server = HttpServer(settings, groups, Health(self._health_now, hung))
        self._client = PeerClient(settings, lambda: session_keys().current, sessioned)
        self.url = advertised_url(settings, self._server.ports, own_address())
        """The URL under which other workers call this one. It ends with a slash, as in Java."""

    @property
    def worker_id(self) -> str:
        """The worker's id in Connect's statuses: ``host:port``."""
        return self.url.split("://", 1)[1].rstrip("/")

    def start(self) -> None:
        self._server.start()
        log.info("REST server listens, advertising %s", self.url)

    def without_group(self) -> None:
        """Refuse internal requests from now on, as Java's standalone worker does."""
        self._alone = True

    def ready(self) -> None:
        """Answer requests from now on, because the worker has completed its startup."""
        self._ready = True

    def close(self) -> None:
        self._closing = True
        self._open.answer_all(CLOSED)
        self._server.close()
        self._client.close()
        self._heavy.close()

    # -- the port --

    def call(self, url: str, call: Call, hops: int, timeout_ms: int, origin: str = "") -> Result:
        return self._client.call(url, call, hops, timeout_ms)

    def ask(self, call: Call, timeout_ms: int) -> Result:
        """Return the answer to a call from this process.

        The call does not go over HTTP: `url` may be reachable only from outside.

        Raises:
            TimeoutError: no answer came in time.
            TooManyError: too many calls are open, and this one was not made.
        """

        return asyncio.run(self.asked(call, timeout_ms))

    async def asked(self, call: Call, timeout_ms: int, hops: int = 0, origin: str = "") -> Result:
        """As `ask`, on the caller's event loop, whichever that is.

        Args:
            hops, origin: as in `IncomingCall`.
        """
        if self._closing:
            return CLOSED
        gone = asyncio.get_running_loop().create_future()
        return await self._open.ask(call, hops, timeout_ms, GRACE_MS, gone, origin)

    def incoming(self) -> Sequence[IncomingCall]:
        return self._open.take()

    def answer(self, call_id: str, result: Result) -> None:
        self._open.answer(call_id, result)

    # -- requests, on the server's loop --

    async def _everything(
        self, request: HttpRequest, base_url: str, gone: asyncio.Future[None]
    ) -> HttpResponse:
        try:
            if len(request.body) > self._settings.limits.body_bytes:
                await self._heavy.run(partial(self._verify, request))
            await self._check_values(request)
            what = await self._by_size(len(request.body), partial(translate.understand, request))
            return await self._answer(request, what, base_url, gone)
        except Refusal as refusal:
            return refusal.response()
        except ConnectionAbortedError:
            raise
        except Exception as error:
            log.exception("%s %s", request.method, request.path)
            return error_response(500, f"{type(error).__name__}: {error}")

    async def _public(
        self, request: HttpRequest, base_url: str, gone: asyncio.Future[None]
    ) -> HttpResponse:
        if _is_admin(request):
            return Refusal(404, "HTTP 404 Not Found").response()
        return await self._everything(request, base_url, gone)

    async def _admin(
        self, request: HttpRequest, base_url: str, gone: asyncio.Future[None]
    ) -> HttpResponse:
        if not _is_admin(request):
            return Refusal(404, "HTTP 404 Not Found").response()
        return await self._everything(request, base_url, gone)

    async def _answer(
        self,
        request: HttpRequest,
        what: translate.HerderRequest | translate.SideRequest,
        base_url: str,
        gone: asyncio.Future[None],
    ) -> HttpResponse:
        if isinstance(what, translate.ShowHealth):
            return await self._health(gone)
        if isinstance(what, translate.ShowMetrics):
            return await self._show_metrics(request, gone)
        if not self._ready and not isinstance(what, _ALWAYS):
            return side_requests.starting()
        timeout_ms = _timeout_ms(request, self._settings.request_timeout_ms)
        if not isinstance(what, translate.HerderRequest):
            answer = await self._side_request(what, timeout_ms)
            if isinstance(answer, HttpResponse):
                return answer
            what = answer
        if what.internal and self._alone:
            return side_requests.without_group(what.call)
        if what.internal and self._sessioned():
            self._verify(request)
        origin = f"over REST by {request.client}" if request.client else ""
        result = await self._ask(what.call, what.hops, timeout_ms, gone, origin)
        size = least_size(result, LIGHT_BYTES)
        return await self._by_size(size, lambda: translate.respond(what, result, base_url))

    async def _by_size(self, size: int, work: Callable[[], T]) -> T:
        """Run `work`, which reads or writes JSON of about `size` bytes, and return its result. If
        it is large, it runs on the heavy thread."""
        if size <= LIGHT_BYTES:
            return work()
        return await self._heavy.run(work)

    def _verify(self, request: HttpRequest) -> None:
        allowed = self._settings.verification_algorithms
        verify(request.headers, request.body, self._session_keys(), allowed)

    async def _check_values(self, request: HttpRequest) -> None:
        """Check that a body does not have too many JSON values, which take many times their bytes
        in memory. Task configs, which are signed, are exempt.

        Raises:
            Refusal: 413, the body has too many values.
        """
        limits = self._settings.limits
        if marks_in(request.body) <= limits.body_values:
            return
        if self._body_limit(request.method, request.path) > limits.body_bytes:
            return
        count = await self._heavy.run(partial(values_in, request.body))
        if count > limits.body_values:
            raise Refusal(
                413,
                f"The body has about {count} values; at most {limits.body_values} are read "
                "(headgate.rest.body.max.values)",
            )

    def _body_limit(self, method: str, path: str) -> int:
        """Return the most bytes that the body of a request may have.

        Task configs are several records and may be longer, if only members of the group can send
        them. Their signature is verified before they are read as JSON.
        """
        limits = self._settings.limits
        with contextlib.suppress(Refusal):
            parts = path_segments(path)
            tasks = len(parts) == 3 and (parts[0], parts[2]) == ("connectors", "tasks")
            if method == "POST" and tasks and self._sessioned():
                return max(limits.task_configs_bytes, limits.body_bytes)
        return limits.body_bytes

    async def _side_request(
        self, what: translate.SideRequest, timeout_ms: int
    ) -> HttpResponse | translate.HerderRequest:
        """Answer a request that is not for the herder. Plugins' code runs on separate threads, with
        a time limit, because it may hang for ever."""
        answer = partial(self._side_requests.answer, what)
        if isinstance(what, translate.ValidatePlugin):
            plugin = what.config.get("connector.class") or what.plugin
        elif isinstance(what, translate.DescribePlugin):
            plugin = what.plugin
        elif isinstance(what, translate.ListPlugins):
            plugin = ""
        else:
            return await asyncio.to_thread(answer)
        try:
            return await self._plugin_calls.run(plugin, answer, timeout_ms)
        except PluginsHangError as error:
            return error_response(500, str(error))
        except LateError as error:
            text = f"Request timed out. The plugin has not answered within {timeout_ms} ms."
            if not error.begun:
                text = (
                    f"Request timed out. The worker has not begun with it within {timeout_ms} ms: "
                    "too many calls of plugins that were made before are under way."
                )
            return error_response(500, text)

    async def _ask(
        self,
        call: Call,
        hops: int,
        timeout_ms: int,
        gone: asyncio.Future[None],
        origin: str = "",
    ) -> Result:
        """Return the herder's result of a call, or a `Failure` if there is none in time.

        Raises:
            Refusal: 503, too many requests wait.
        """
        if self._closing:
            return CLOSED
        try:
            return await self._open.ask(call, hops, timeout_ms, GRACE_MS, gone, origin)
        except TooManyError:
            text = f"{OPEN_MAX} requests wait for this worker already"
            raise Refusal(503, text, translate.RETRY_LATER) from None
        except TimeoutError as error:
            taken: bool = error.args[0]
            text = f"Request timed out. The worker has not answered within {timeout_ms} ms."
            if not taken:
                text = (
                    f"Request timed out. The worker has not begun with it within {timeout_ms} ms: "
                    "its loop hangs."
                )
            return Failure(ErrorKind.TIMEOUT, text)

    async def _show_metrics(self, request: HttpRequest, gone: asyncio.Future[None]) -> HttpResponse:
        """Answer ``/metrics``, for Prometheus. Connect has JMX instead."""
        if self._metrics is None:
            text = 'metrics need headgate[rest]: pip install "headgate[rest]"'
            return error_response(404, text)
        result = await self._ask(DescribeWorker(), 0, METRICS_TIMEOUT_MS, gone)
        if isinstance(result, Failure):
            return error_response(503, result.message)
        view = cast(Json, result.value)
        shown = await asyncio.to_thread(self._metrics, view)
        headers = {"Content-Type": METRICS_TYPE, "Vary": "Accept-Encoding"}
        if takes_gzip(request):
            shown = await asyncio.to_thread(gzip.compress, shown, GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        return HttpResponse(200, shown, headers)

    async def _health_now(self) -> HttpResponse:
        """Answer `/health` on the event loop of another thread. It raises nothing."""
        try:
            return await self._health(asyncio.get_running_loop().create_future())
        except Refusal as refusal:
            return refusal.response()
        except Exception as error:
            log.exception("GET /health")
            return error_response(500, f"{type(error).__name__}: {error}")

    async def _health(self, gone: asyncio.Future[None]) -> HttpResponse:
        """Answer `/health`. A worker is healthy if its herder answers. Source: KIP-1017."""
        if error_text := self._error_text():
            return side_requests.health(500, "unhealthy", side_requests.UNHEALTHY + error_text)
        if not self._ready:
            return side_requests.health(503, "starting", side_requests.STARTING)
        result = await self._ask(DescribeWorker(), translate.USER_HOPS, HEALTH_TIMEOUT_MS, gone)
        if isinstance(result, Failure):
            return side_requests.health(500, "unhealthy", side_requests.UNHEALTHY + result.message)
        return side_requests.health(200, "healthy", side_requests.HEALTHY)


def _is_admin(request: HttpRequest) -> bool:
    return request.path.split("/")[1:2] == ["admin"]


def _timeout_ms(request: HttpRequest, longest_ms: int) -> int:
    """Return the time limit of a request: as long as a calling worker says that it waits, and
    otherwise Connect's 90 s."""
    text = request.headers.get(TIMEOUT_HEADER.lower(), "")
    if not (text.isascii() and text.isdecimal()):
        return longest_ms
    return min(max(int(text.lstrip("0")[:_MS_DIGITS] or "0"), 1), longest_ms)
