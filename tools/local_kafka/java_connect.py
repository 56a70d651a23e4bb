"""Distributed Java Connect workers of the pinned version, with the connectors of connect-file."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import javaproperties

from local_kafka.jvm import QUICK, START_TIMEOUT_S, Jvm, JvmError, OnJvm, free_ports

HEAP_MB = 320
REQUEST_TIMEOUT_S = 100.0
"""More than the 90 s after which Connect itself answers that a request has timed out."""
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of Connect's REST API."""

    status: int
    body: Any
    """The JSON of the answer, or its text if it is not JSON. None: the answer is empty."""


class Rest:
    """A client of Connect's REST API at one address, of Headgate's worker or Java's.

    All methods return the reply, and none raises for a status. If the worker does not answer, they
    raise `httpx.TransportError`.
    """

    def __init__(self, url: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._client = httpx.Client(base_url=url, timeout=timeout_s)

    def call(self, method: str, path: str, body: object = None) -> Reply:
        """Send a request. `body` is sent as JSON unless it is None."""
        content = {} if body is None else {"json": body}
        answer = self._client.request(method, path, **content)  # type: ignore[arg-type]
        if not answer.content:
            return Reply(answer.status_code, None)
        try:
            return Reply(answer.status_code, answer.json())
        except ValueError:
            return Reply(answer.status_code, answer.text)

    def get(self, path: str) -> Reply:
        return self.call("GET", path)

    def put(self, path: str, body: object = None) -> Reply:
        return self.call("PUT", path, body)

    def post(self, path: str, body: object = None) -> Reply:
        return self.call("POST", path, body)

    def patch(self, path: str, body: object) -> Reply:
        return self.call("PATCH", path, body)

    def delete(self, path: str) -> Reply:
        return self.call("DELETE", path)

    def create(self, connector: str, config: Mapping[str, str]) -> Reply:
        return self.post("/connectors", {"name": connector, "config": dict(config)})

    def status(self, connector: str) -> Reply:
        return self.get(f"/connectors/{quote(connector, safe='')}/status")

    def await_tasks(
        self, connector: str, states: Sequence[str], timeout_s: float = START_TIMEOUT_S
    ) -> Reply:
        """Wait until the connector's tasks are in `states`, in the order of their numbers. Returns
        the connector's status.

        Raises:
            TimeoutError: they are not within `timeout_s`. The message has the last status.
        """
        return self.await_reply(
            lambda: self.status(connector),
            lambda reply: (
                reply.status == 200
                and [task["state"] for task in reply.body["tasks"]] == list(states)
            ),
            timeout_s,
        )

    def await_reply(
        self, ask: Callable[[], Reply], wanted: Callable[[Reply], bool], timeout_s: float
    ) -> Reply:
        """Repeat a request until `wanted` holds for the reply. Raises `TimeoutError` with the last
        reply."""
        deadline = time.monotonic() + timeout_s
        while True:
            reply = ask()
            if wanted(reply):
                return reply
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout_s:g} s the last reply was {reply}")
            time.sleep(0.05)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class JavaWorker(OnJvm):
    """A distributed worker that can be stopped, killed, frozen and started again at the same URL.

    Args:
        folder: folder for its settings and its log.
        properties: worker properties, which override those of `defaults`. `bootstrap.servers` and
            `group.id` are required.
        file: properties file on which the worker is started unchanged. `properties` are its
            content. None: a file is written from `properties` at each start.
        heap_mb, flags: as for `Jvm`.
    """

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str],
        *,
        file: Path | None = None,
        heap_mb: int = HEAP_MB,
        flags: Sequence[str] = QUICK,
    ) -> None:
        self.folder = folder.absolute()
        self.url = properties["listeners"] if file else f"http://127.0.0.1:{free_ports(1)[0]}"
        self.properties = {**defaults(properties["group.id"], self.url), **properties}
        self.rest = Rest(self.url)
        self.file = file or self.folder / "connect-distributed.properties"
        self._makes_file = file is None
        command = [_MAIN, str(self.file)]
        self.jvm = Jvm(self.folder, "worker", command, heap_mb=heap_mb, flags=flags)

    @classmethod
    def on(cls, folder: Path, file: Path) -> Self:
        """Return a worker on an existing properties file, at the address that its `listeners`
        has."""
        return cls(folder, javaproperties.loads(file.read_text()), file=file)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the worker. Returns when it is a member of its group and answers. Raises
        `JvmError`."""
        self.launch(timeout_s)
        self.await_ready(timeout_s)

    def launch(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the worker without waiting until it is a member of its group. Raises `JvmError`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._makes_file:
            self.file.write_text(javaproperties.dumps(self.properties, timestamp=False))
        self.jvm.start(lambda: True, timeout_s)

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until `/health` answers 200. Raises `JvmError` after killing the worker."""
        deadline = time.monotonic() + timeout_s
        while not self._healthy():
            if not self.jvm.running or time.monotonic() > deadline:
                what = "is not ready" if self.jvm.running else "ended"
                self.jvm.kill()
                raise JvmError(f"the worker {what} within {timeout_s:g} s{self.jvm.tail()}")
            time.sleep(0.05)

    def _healthy(self) -> bool:
        try:
            return self.rest.get("/health").status == 200
        except httpx.TransportError:
            return False


def defaults(group: str, url: str) -> dict[str, str]:
    """Return properties of a worker on a single-node broker. Its internal topics are named after
    the group."""
    return {
        "key.converter": _CONVERTER,
        "value.converter": _CONVERTER,
        "config.storage.topic": f"{group}-configs",
        "offset.storage.topic": f"{group}-offsets",
        "status.storage.topic": f"{group}-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "2",
        "listeners": url,
        "plugin.discovery": "service_load",
    }
