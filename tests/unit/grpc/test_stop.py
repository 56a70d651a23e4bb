"""A worker ends. Clients of gRPC hear of it before it begins, every call is answered, and each
watch gets a reason."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.grpc.http2 import GOAWAY, SETTINGS, RawHttp2
from support.grpc.worker import Served, grpc_worker
from support.task.slow_to_stop import SlowTask

from headgate_grpc.client import HeadgateError
from headgate_grpc.v1 import connector_service_pb2 as pb

SLOW = {"connector.class": "support.task.slow_to_stop:SlowToStop", "n": "1"}
SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
ANSWERED_S = 2.0
NO_OFFSET = 10**12
"""A read that asks for it waits until its deadline."""
Health = health_pb2.HealthCheckResponse


class Ends:
    """The outcome of each call, in order, with its time."""

    def __init__(self) -> None:
        self._found: queue.Queue[tuple[str, float, object]] = queue.Queue()
        self._threads: list[threading.Thread] = []

    def follow(self, what: str, call: Callable[[], object]) -> None:
        def run() -> None:
            try:
                found = call()
            except grpc.RpcError as error:
                found = HeadgateError.of(error)
            self._found.put((what, time.monotonic(), found))

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def all(self) -> list[tuple[str, float, Any]]:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        return [self._found.get_nowait() for _ in self._threads]


@contextmanager
def told_health(served: Served) -> Iterator[Iterator[int]]:
    with grpc.insecure_channel(served.address.removeprefix("grpc://")) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        stream = stub.Watch(health_pb2.HealthCheckRequest())
        yield (each.status for each in stream)
        stream.cancel()


def drained(stream: Any) -> None:
    for _ in stream:
        pass


def open_calls(served: Served, ends: Ends) -> None:
    """A watch, a wait and a read that all last, each of them under way."""
    stub = served.client.connectors
    watch = stub.WatchConnectors(pb.WatchConnectorsRequest())
    next(watch)
    ends.follow("watch", lambda: drained(watch))
    wait = pb.WaitConnectorRequest(name="c", deleted=True)
    ends.follow("wait", lambda: stub.WaitConnector(wait, timeout=60))
    read = pb.GetConnectorRequest(name="c", min_config_offset=NO_OFFSET)
    ends.follow("read", lambda: stub.GetConnector(read, timeout=60))
    time.sleep(0.3)


def test_a_stop_is_told_before_anything_of_it_can_be_seen(tmp_path: Path) -> None:
    SlowTask.started.clear()
    with grpc_worker(tmp_path) as served, told_health(served) as health:
        while next(health) != Health.SERVING:
            pass
        served.client.create("c", SLOW)
        served.client.wait("c", timeout_s=30)
        ends = Ends()
        open_calls(served, ends)
        begun = time.monotonic()
        served.worker.stop()
        assert next(health) == Health.NOT_SERVING
        assert not served.worker.herder.done, "its task is still stopping"
        with pytest.raises(HeadgateError) as caught:
            served.client.pause("c")
        assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "NOT_READY")
        assert caught.value.may_be_repeated
        served.server.close()
        check_ends(ends, begun)


def check_ends(ends: Ends, begun: float) -> None:
    found = ends.all()
    assert {what for what, _, _ in found} == {"watch", "wait", "read"}
    for what, at, error in found:
        assert isinstance(error, HeadgateError), (what, error)
        assert (error.code, error.reason) == ("UNAVAILABLE", "NOT_READY"), (what, error)
        assert at - begun < ANSWERED_S, what


def test_a_server_that_is_closed_answers_and_says_goodbye(tmp_path: Path) -> None:
    """The worker lives on, so the server itself must answer the open calls."""
    with grpc_worker(tmp_path) as served, told_health(served) as health:
        while next(health) != Health.SERVING:
            pass
        served.client.create("c", SINK)
        ends = Ends()
        open_calls(served, ends)
        with RawHttp2(served.address) as raw:
            raw.greet()
            assert (first := raw.frame(10)) and first.type == SETTINGS, "the server has taken it"
            begun = time.monotonic()
            served.server.close()
            assert next(health) == Health.NOT_SERVING
            frames = raw.until_closed(5)
            assert [each.error_code for each in frames if each.type == GOAWAY]
        for what, at, error in ends.all():
            assert at - begun < ANSWERED_S, what
            assert isinstance(error, HeadgateError) and error.code == "UNAVAILABLE", (what, error)
            assert error.reason == "NOT_READY" or error.broke_off, (what, error)
        with pytest.raises(HeadgateError) as caught:
            served.client.get("c")
        assert caught.value.code == "UNAVAILABLE" and caught.value.may_be_repeated
