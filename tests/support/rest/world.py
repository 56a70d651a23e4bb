"""REST services of several workers on real sockets, for tests of the calls between workers."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.rest.serving import serving_meanwhile

from headgate.herder.messages import Call, Result
from headgate.herder.session_keys import KeyRing
from headgate.ports import IncomingCall
from headgate.topics.config_events import SessionKeyChanged
from headgate_rest import RestService, RestSettings

LOCAL = {"listeners": "http://127.0.0.1:0", "headgate.rest.front.process": "false"}


class NoPlugins:
    def submit(self, plugin: str, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="plugins", daemon=True).start()

    def listed(self, *, connectors_only: bool) -> Sequence[Mapping[str, Any]]:
        return []

    def config(self, plugin: str) -> Sequence[Mapping[str, Any]]:
        raise LookupError(f"Unknown plugin {plugin}.")

    def notes(self, config: Mapping[str, str | None]) -> Sequence[tuple[str, str]]:
        return ()

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> Mapping[str, Any]:
        raise ValueError(f"no connector type in {dict(config)}")


@dataclass
class FakeLoggers:
    """A table of loggers and their levels."""

    table: dict[str, str] = field(default_factory=lambda: {"root": "INFO"})

    def levels(self) -> Mapping[str, Mapping[str, Any]]:
        return {name: self._shown(name) for name in self.table}

    def level(self, logger: str) -> Mapping[str, Any] | None:
        return self._shown(logger) if logger in self.table else None

    def is_level(self, level: str) -> bool:
        return level.upper() in ("DEBUG", "INFO")

    def set_level(self, logger: str, level: str) -> Sequence[str]:
        self.table[logger] = level.upper()
        return [logger]

    def _shown(self, name: str) -> Mapping[str, Any]:
        return {"level": self.table[name], "last_modified": None}


@dataclass
class Keys:
    """The group's session key, and whether the group's protocol requires signed calls."""

    key: SessionKeyChanged | None = None
    also: tuple[bytes, ...] = ()
    sessioned: bool = False


def service(texts: Mapping[str, str] = LOCAL, keys: Keys | None = None, **more: Any) -> RestService:
    keys = keys or Keys()
    return RestService(
        RestSettings.of(texts),
        root={"version": "test", "commit": "c", "kafka_cluster_id": "k"},
        plugins=NoPlugins(),
        loggers=FakeLoggers(),
        session_keys=lambda: KeyRing(keys.key, keys.also),
        sessioned=lambda: keys.sessioned,
        **more,
    )


@contextmanager
def serving(
    answer: Callable[[Call, IncomingCall], Result | None],
    texts: Mapping[str, str] = LOCAL,
    keys: Keys | None = None,
    **more: Any,
) -> Iterator[RestService]:
    """Run a service whose calls a thread answers with `answer`. None means that there is no
    answer."""
    arrived, over = threading.Event(), threading.Event()
    made = service(texts, keys, arrived=arrived.set, **more)
    made.start()
    made.ready()

    def serve() -> None:
        while not over.is_set():
            arrived.wait()
            arrived.clear()
            for call in made.incoming():
                result = answer(call.call, call)
                if result is not None:
                    made.answer(call.call_id, result)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield made
    finally:
        over.set()
        arrived.set()
        thread.join()
        made.close()


class NamedPeers:
    """The `Peers` of one worker. It reaches the other workers by the names that the test gives
    them."""

    def __init__(self, own: RestService, urls: Mapping[str, str]) -> None:
        self._own = own
        self._urls = urls

    def call(self, url: str, call: Call, hops: int, timeout_ms: int, origin: str = "") -> Result:
        return self._own.call(self._urls.get(url, NOBODY), call, hops, timeout_ms, origin)

    def incoming(self) -> Sequence[IncomingCall]:
        return self._own.incoming()

    def answer(self, call_id: str, result: Result) -> None:
        self._own.answer(call_id, result)


NOBODY = "http://127.0.0.1:9/"
"""The port of "discard", where nobody listens."""


@dataclass(frozen=True)
class PeersOnly:
    """The transport of a worker in tests that need only its `Peers` port."""

    peers: NamedPeers


class RestWorld:
    def __init__(self, _folder: Path) -> None:
        self._services: dict[str, RestService] = {}
        self._urls: dict[str, str] = {}

    def connect(self, url: str = "") -> PeersOnly:
        if url not in self._services:
            made = service()
            made.start()
            made.ready()
            self._services[url] = made
            self._urls[url] = made.url
        return PeersOnly(NamedPeers(self._services[url], self._urls))

    def serving(self, serve: Callable[[], None]) -> AbstractContextManager[None]:
        return serving_meanwhile(serve)

    def close(self) -> None:
        for made in self._services.values():
            made.close()


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.002)
