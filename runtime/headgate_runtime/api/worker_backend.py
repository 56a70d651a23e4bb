"""Backend of the gRPC services for one worker. Its calls are handled like those that come by
HTTP."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate import wire
from headgate.herder.messages import (
    Call,
    DescribeGroup,
    DescribeWorker,
    ErrorKind,
    Failure,
    Result,
    Success,
    WorkerView,
)
from headgate_runtime.api.members import member
from headgate_runtime.api.others import Others
from headgate_runtime.api.threads import on_thread
from headgate_runtime.plugins.rest import RestPlugins
from headgate_runtime.worker.daemon_threads import DaemonThreads
from headgate_runtime.worker.loggers import Loggers
from headgate_runtime.worker.loop import Worker

if TYPE_CHECKING:
    from headgate_rest import RestService

T = TypeVar("T")

THREADS: Final = 8
"""How many plugins are asked at once."""
GROUP_MS: Final = 5_000
"""How long the leader may take to say who is in the group, in ms."""
OUTSIDE: Final = "this worker has not joined the group"
WITHOUT_GROUP: Final = "the leader is a Java worker or an older Headgate, which does not tell"


class WorkerBackend:
    """The backend of one worker. Like the REST service, it is made before the worker."""

    def __init__(
        self,
        rest: "RestService",
        root: Mapping[str, Any],
        plugins: RestPlugins,
        loggers: Loggers,
    ) -> None:
        """`root` has version, commit and kafka_cluster_id, as ``GET /`` of the REST API shows
        them."""
        self._rest = rest
        self._root = root
        self._threads = DaemonThreads(THREADS, "plugins")
        self._others = Others()
        self._worker: Worker | None = None
        self.plugins = plugins
        self.loggers = loggers
        self.ready = False

    def serve(self, worker: Worker) -> None:
        """Pass all calls to this worker from now on."""
        self._worker = worker
        worker.show_calls(self.plugins.calls)

    async def ask(self, call: Call, timeout_ms: int, origin: str = "") -> Result:
        return await self.ask_as_peer(call, 0, timeout_ms, origin)

    async def ask_as_peer(self, call: Call, hops: int, timeout_ms: int, origin: str = "") -> Result:
        """Return the answer to a call that was forwarded between workers `hops` times."""
        from headgate_grpc.backend import TooManyError
        from headgate_rest.open_calls import OPEN_MAX
        from headgate_rest.open_calls import TooManyError as TooManyOpenError

        try:
            return await self._rest.asked(call, timeout_ms, hops, origin)
        except TooManyOpenError:
            raise TooManyError(f"{OPEN_MAX} requests wait for this worker already") from None
        except TimeoutError:
            text = f"Request timed out. The worker has not answered within {timeout_ms} ms."
            return Failure(ErrorKind.TIMEOUT, text)

    async def on_thread(self, work: Callable[[], T], timeout_ms: int) -> T:
        return await on_thread(self._threads, work, timeout_ms)

    async def cluster(self, timeout_ms: int) -> Mapping[str, Any]:
        view: Any = None
        unknown = ""
        result = await self.ask(DescribeWorker(), timeout_ms)
        if isinstance(result, Success):
            view = result.value
        else:
            unknown = result.message
        group = "" if self._worker is None else self._worker.settings["group.id"] or ""
        names = {"worker_id": self._rest.worker_id, "url": self._rest.url}
        worker = {**names, "view": view, "unknown": unknown}
        return {**self._root, "group_id": group, "workers": [worker]}

    async def group(self, timeout_ms: int) -> Mapping[str, Any]:
        """Return `cluster` with the other workers of the group. Each is described by itself, or
        else by the leader's last round."""
        found = dict(await self.cluster(timeout_ms))
        (own,) = found["workers"]
        if own["view"] is None or not own["view"]["leader"]:
            return {**found, "others_unknown": OUTSIDE}
        asked = await self.ask(DescribeGroup(), min(timeout_ms, GROUP_MS))
        if isinstance(asked, Failure):
            unknown = asked.kind is ErrorKind.NOT_FOUND
            return {**found, "others_unknown": WITHOUT_GROUP if unknown else asked.message}
        group: Any = asked.value
        own["member"] = any(each["url"] == own["url"] for each in group["members"])
        told = [each for each in group["members"] if each["url"] != own["url"]]
        assert self._worker is not None
        ask = self._worker.transport.peers.call
        views = await self._others.views(ask, [each["url"] for each in told])
        others = [_member(each, group, views[each["url"]]) for each in told]
        workers = sorted([own, *others], key=lambda each: each["worker_id"])
        return {**found, "workers": workers}

    def watch(self, touched: Callable[[Iterable[str]], None] | None) -> None:
        if self._worker is not None:
            self._worker.watch_connectors(touched)


def _member(
    told: Mapping[str, Any], group: Mapping[str, Any], view: WorkerView | str
) -> Mapping[str, Any]:
    """Return one worker in the form of `headgate_grpc.backend.Backend.group`."""
    known = None if isinstance(view, str) else view
    found = member(told, group)
    return {
        **found,
        "worker_id": found["worker_id"] if known is None else known.worker_id,
        "view": None if known is None else wire.plain(known),
        "unknown": "" if known is not None else view,
        "counts": (told["connectors"], told["tasks"]),
    }
