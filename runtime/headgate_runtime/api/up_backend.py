"""Backend of the gRPC services for all workers of a `headgate up`.

The process of `headgate up` reads the log itself. So lists and watches work even while no worker
answers. Changes, and what only workers know, are asked of a worker.
"""

import importlib.metadata
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from headgate import wire
from headgate.herder.messages import (
    Call,
    ErrorKind,
    Failure,
    Result,
    ShowConnector,
    ShowConnectors,
    WorkerView,
)
from headgate.herder.reads import BEHIND, read
from headgate.herder.rows import touched_by_configs, touched_by_statuses
from headgate.herder.settings import HerderSettings
from headgate.ports import TransportError
from headgate.topics.config_records import decode
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate.topics.status import StatusView, decode_status, fold_statuses
from headgate_runtime.api.threads import on_thread
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins.rest import RestPlugins
from headgate_runtime.transports.select import Transport
from headgate_runtime.worker.daemon_threads import DaemonThreads
from headgate_runtime.worker.loggers import Loggers

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH: Final = 5_000
LOOK_S: Final = 0.05
"""How often the log is looked at while there is a watch, in seconds."""
AGAIN_S: Final = 0.1
CALLS_AT_ONCE: Final = 16
WAITING_MAX: Final = 1_000
PLUGIN_THREADS: Final = 8
NO_WORKER: Final = (
    "No worker of this headgate up answers at the moment; the folder logs in its data folder says "
    "why. Ask again"
)
NO_ANSWER: Final = (
    "it has not answered: it starts, or has ended; the folder logs in the data folder says why"
)


class UpBackend:
    """The backend of a `headgate up`, with a view of the log of its own."""

    def __init__(
        self,
        transport: Transport,
        settings: HerderSettings,
        worker_settings: WorkerSettings,
        urls: Callable[[], Sequence[str]],
        workers: Callable[[], Sequence[tuple[str, str, WorkerView | None]]],
    ) -> None:
        """Take the log's transport, which the backend only reads.

        Args:
            transport: closed by its opener, after `close`.
            urls: returns the URLs of the workers that can be asked now.
            workers: returns name, URL and last view of each worker.
        """
        self._transport = transport
        self._settings = settings
        self._group = worker_settings["group.id"]
        self._urls = urls
        self._workers = workers
        self._view = _LogView(transport)
        self._calls = DaemonThreads(CALLS_AT_ONCE, "grpc-calls")
        self._plugin_threads = DaemonThreads(PLUGIN_THREADS, "plugins")
        self._waiting = 0
        self._closed = threading.Event()
        self.plugins = RestPlugins(worker_settings)
        self.loggers = Loggers()
        self.ready = True

    def close(self) -> None:
        self._closed.set()
        self._view.watch(None)
        self._calls.close()

    async def ask(self, call: Call, timeout_ms: int, origin: str = "") -> Result:
        from headgate_grpc.backend import TooManyError

        if self._waiting >= WAITING_MAX:
            raise TooManyError(f"{WAITING_MAX} requests wait for this headgate up already")
        until = time.monotonic() + timeout_ms / 1000
        self._waiting += 1
        try:
            return await on_thread(
                self._calls, lambda: self._answer(call, until, origin), timeout_ms
            )
        except TimeoutError:
            text = f"Request timed out. No worker has answered within {timeout_ms} ms."
            return Failure(ErrorKind.TIMEOUT, text)
        except TransportError as error:
            return Failure(ErrorKind.TIMEOUT, str(error))
        finally:
            self._waiting -= 1

    async def on_thread(self, work: Callable[[], T], timeout_ms: int) -> T:
        return await on_thread(self._plugin_threads, work, timeout_ms)

    async def cluster(self, timeout_ms: int) -> Mapping[str, Any]:
        workers = [
            {"worker_id": name, "url": url, "view": None, "unknown": NO_ANSWER}
            if view is None
            else {"worker_id": name, "url": url, "view": wire.plain(view)}
            for name, url, view in self._workers()
        ]
        return {
            "version": importlib.metadata.version("headgate"),
            "commit": "unknown",
            "kafka_cluster_id": "embedded",
            "group_id": self._group,
            "workers": workers,
        }

    async def group(self, timeout_ms: int) -> Mapping[str, Any]:
        """Return what `cluster` returns, which always includes all workers."""
        return await self.cluster(timeout_ms)

    def watch(self, touched: Callable[[Iterable[str]], None] | None) -> None:
        self._view.watch(touched)

    # -- on a thread --

    def _answer(self, call: Call, until: float, origin: str) -> Result:
        if isinstance(call, ShowConnector | ShowConnectors):
            return self._read(call, until)
        while not self._closed.is_set():
            left_ms = int((until - time.monotonic()) * 1000)
            urls = self._urls()
            if urls and left_ms > 0:
                return self._transport.peers.call(urls[0], call, 0, left_ms, origin)
            if left_ms <= 0:
                break
            self._closed.wait(AGAIN_S)
        return Failure(ErrorKind.NOT_READY, NO_WORKER)

    def _read(self, call: ShowConnector | ShowConnectors, until: float) -> Result:
        state, statuses = self._view.read()
        while max(state.offset, 0) < call.min_config_offset:
            if time.monotonic() > until or self._closed.wait(LOOK_S):
                return Failure(ErrorKind.TIMEOUT, BEHIND.format(state.offset))
            state, statuses = self._view.read()
        return read(state, statuses, call, self._settings)


class _LogView:
    """The config topic and the status topic, folded. Safe for several threads."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._state = ConfigState()
        self._statuses = StatusView()
        self._config_position = 0
        self._status_position = 0
        self._touched: Callable[[Iterable[str]], None] | None = None
        self._follower: threading.Thread | None = None

    def read(self) -> tuple[ConfigState, StatusView]:
        """Return the states of both topics, read to their ends.

        Raises:
            TransportError: the log cannot be read.
        """
        with self._lock:
            names = {**self._read_config(), **self._read_statuses()}
            # Before the lock is released: watchers are told of all that later answers of other
            # threads show.
            if names and self._touched is not None:
                with suppress(RuntimeError):  # the watcher has ended, and its event loop with it
                    self._touched(names)
            return self._state, self._statuses

    def watch(self, touched: Callable[[Iterable[str]], None] | None) -> None:
        with self._lock:
            self._touched = touched
            if touched is None or self._follower is not None:
                return
            self._follower = threading.Thread(target=self._follow, name="grpc-watch", daemon=True)
        self._follower.start()

    def _follow(self) -> None:
        while True:
            try:
                self.read()
            except TransportError as error:
                log.warning("the log cannot be read, watches see nothing new: %s", error)
            time.sleep(LOOK_S)
            with self._lock:
                if self._touched is None:
                    self._follower = None
                    return

    def _read_config(self) -> dict[str, None]:
        names: dict[str, None] = {}
        while True:
            records, self._config_position = self._transport.config_log.read(
                self._config_position, BATCH
            )
            if not records:
                return names
            events = [decode(each.offset, each.key, each.value) for each in records]
            self._state = fold(self._state, events)
            names.update(dict.fromkeys(touched_by_configs(events)))

    def _read_statuses(self) -> dict[str, None]:
        names: dict[str, None] = {}
        while True:
            records, self._status_position = self._transport.status_log.read(
                self._status_position, BATCH
            )
            if not records:
                return names
            events = [decode_status(each.key, each.value) for each in records]
            self._statuses = fold_statuses(self._statuses, events)
            told = [("", event) for event in events]
            names.update(dict.fromkeys(touched_by_statuses(told)))
