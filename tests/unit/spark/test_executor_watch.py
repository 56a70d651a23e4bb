"""An application that has lost its last executor for good is told from one that waits for
executors."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from headgate_spark.executor_watch import ExecutorWatch

PATIENCE_S = 10.0


class Pages:
    """The pages of a Spark that the watch reads."""

    def __init__(self) -> None:
        self.executors = 0
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                names = ["driver", *map(str, range(pages.executors))]
                found = {
                    "/api/v1/applications": [{"id": "app-1"}],
                    "/api/v1/applications/app-1/executors": [{"id": name} for name in names],
                }[self.path]
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def pages() -> Iterator[Pages]:
    made = Pages()
    yield made
    made.close()


@pytest.fixture
def master() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def watching(pages: Pages, master: socket.socket, kind: str = "spark://") -> ExecutorWatch:
    host, port = master.getsockname()
    made = ExecutorWatch(f"{kind}{host}:{port}", pages.address, look_s=0.02, none_s=0.2)
    made.begin()
    return made


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stays(watch: ExecutorWatch) -> bool:
    """Return whether the watch notices nothing for several times as long as it needs to notice."""
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        if watch.lost:
            return False
        time.sleep(0.01)
    return True


def test_executors_that_are_gone_for_good_are_noticed(pages: Pages, master: socket.socket) -> None:
    pages.executors = 2
    watch = watching(pages, master)
    assert stays(watch)
    pages.executors = 0
    until(lambda: watch.lost)
    watch.begin()  # Spark was started again, and waits for its first executor
    assert stays(watch)
    watch.end()


def test_a_cluster_without_room_starts_nothing_again(pages: Pages, master: socket.socket) -> None:
    watch = watching(pages, master)
    assert stays(watch)
    watch.end()


def test_without_a_master_there_is_nobody_to_ask(pages: Pages, master: socket.socket) -> None:
    pages.executors = 1
    watch = watching(pages, master)
    time.sleep(0.2)
    master.close()
    pages.executors = 0
    assert stays(watch)
    watch.end()


def test_other_masters_give_executors_by_themselves(pages: Pages, master: socket.socket) -> None:
    pages.executors = 1
    watch = watching(pages, master, kind="k8s://https://")
    time.sleep(0.2)
    pages.executors = 0
    assert stays(watch)
    watch.end()
