"""`WaitConnector` on two real workers never answers for the run before, and answers when its worker
ends."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.depth import first
from support.grpc.worker import Served, grpc_worker
from support.rest.world import wait_until
from support.task import slow_to_stop
from support.task.slow_to_stop import SlowTask

from headgate_grpc import asked
from headgate_grpc.client import HeadgateError, connect_async
from headgate_grpc.server import GRACE_S
from headgate_grpc.v1 import connector_pb2

NAME = "support.task.slow_to_stop:SlowToStop"
SECONDS = {
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    folder = tmp_path_factory.mktemp("waits")
    with ExitStack() as stack:
        workers = [stack.enter_context(grpc_worker(folder, SECONDS)) for _ in range(2)]
        wait_until(lambda: all(each.worker.herder.view().settled for each in workers), 30)
        wait_until(lambda: all(each.worker.herder.view().leader for each in workers), 30)
        yield workers[0], workers[1]


def config(n: int) -> dict[str, str]:
    return {"connector.class": NAME, "n": str(n)}


@pytest.mark.parametrize("stop_s", first(1, [slow_to_stop.STOP_S, 3.0]))
def test_a_wait_behind_a_change_returns_for_no_former_run(
    two: tuple[Served, Served], monkeypatch: pytest.MonkeyPatch, stop_s: float
) -> None:
    """Each change is asked of one worker, and waited for at the other."""
    monkeypatch.setattr(slow_to_stop, "STOP_S", stop_s)
    SlowTask.started.clear()
    for n in range(4):
        changed, other = two if n % 2 else two[::-1]
        changed.client.put_config("c", config(n))
        shown = other.client.wait("c", timeout_s=30)
        assert shown.settled and shown.config["n"] == str(n)
        assert SlowTask.started == list(range(n + 1))


def test_a_wait_behind_a_restart_returns_for_no_former_run(two: tuple[Served, Served]) -> None:
    for name in ("c", "d"):
        two[0].client.put_config(name, config(7))
        two[0].client.wait(name, timeout_s=30)
    for n, name in enumerate(("c", "d", "c", "d")):
        changed, other = two if n % 2 else two[::-1]
        before = len(SlowTask.started)
        changed.client.restart_task(name, 0)
        assert other.client.wait(name, timeout_s=30).settled
        assert len(SlowTask.started) == before + 1


def test_a_wait_behind_a_restart_does_not_end_with_the_failure_before(
    two: tuple[Served, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlowTask, "failing", True)
    two[0].client.put_config("f", config(1))
    with pytest.raises(HeadgateError, match="not now"):
        two[1].client.wait("f", timeout_s=30)
    monkeypatch.setattr(SlowTask, "failing", False)
    for changed, other in (two, two[::-1]):
        changed.client.restart_task("f", 0)
        assert other.client.wait("f", timeout_s=30).settled


def test_a_client_waits_longer_than_a_server_lets_one_call_wait(
    two: tuple[Served, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`headgate connectors wait --timeout 300` does so, although one call has 90 s at most."""
    monkeypatch.setattr(asked, "LONGEST_MS", 200)
    served = two[0]
    served.client.put_config("c", config(8))

    async def wait(timeout_s: float) -> connector_pb2.Connector:
        async with connect_async(served.address) as client:
            return await client.wait("c", state=connector_pb2.STATE_PAUSED, timeout_s=timeout_s)

    for waits in (
        lambda seconds: served.client.wait(
            "c", state=connector_pb2.STATE_PAUSED, timeout_s=seconds
        ),
        lambda seconds: asyncio.run(wait(seconds)),
    ):
        served.client.resume("c")
        served.client.wait("c", timeout_s=30)
        pausing = threading.Timer(1.0, served.client.pause, ("c",))
        pausing.start()
        assert waits(30).status.state == connector_pb2.STATE_PAUSED
        pausing.join()
        served.client.resume("c")
        served.client.wait("c", timeout_s=30)
        began = time.monotonic()
        with pytest.raises(HeadgateError, match="is not PAUSED yet"):
            waits(1.2)
        assert 0.6 < time.monotonic() - began < 10


def test_a_wait_goes_on_when_the_leader_stops_and_one_on_it_is_told(tmp_path: Path) -> None:
    with grpc_worker(tmp_path, SECONDS) as stays, ExitStack() as leads:
        goes = leads.enter_context(grpc_worker(tmp_path, SECONDS))
        wait_until(lambda: all(e.worker.herder.view().settled for e in (stays, goes)), 30)
        leader, other = (goes, stays) if goes.worker.herder.leads else (stays, goes)
        other.client.create("c", config(1), connector_pb2.TARGET_STATE_PAUSED)
        other.client.wait("c", timeout_s=30)
        ends: dict[str, object] = {}

        def wait(what: str, served: Served) -> None:
            try:
                ends[what] = served.client.wait(
                    "c", state=connector_pb2.STATE_RUNNING, timeout_s=60
                )
            except HeadgateError as error:
                ends[what] = error

        waits = [
            threading.Thread(target=wait, args=each)
            for each in (("on the leader", leader), ("on the other", other))
        ]
        for thread in waits:
            thread.start()
        time.sleep(0.5)
        leader.server.close()
        leader.worker.stop()
        waits[0].join(30)
        told = ends["on the leader"]
        assert isinstance(told, HeadgateError)
        assert (told.code, told.reason) == ("UNAVAILABLE", "NOT_READY")
        wait_until(lambda: other.worker.herder.leads, 30)
        assert "on the other" not in ends
        other.client.resume("c")
        waits[1].join(60)
        shown = ends["on the other"]
        assert isinstance(shown, connector_pb2.Connector)
        assert shown.status.state == connector_pb2.STATE_RUNNING


def test_health_says_not_serving_before_calls_end(tmp_path: Path) -> None:
    with grpc_worker(tmp_path, SECONDS) as served:
        served.server.ready()
        with grpc.insecure_channel(served.address.removeprefix("grpc://")) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            told = stub.Watch(health_pb2.HealthCheckRequest())
            status = health_pb2.HealthCheckResponse
            while next(told).status != status.SERVING:
                pass
            began = time.monotonic()
            served.server.close()
            assert next(told).status == status.NOT_SERVING
            assert time.monotonic() - began < GRACE_S + 5
