"""After SIGTERM to `headgate worker` or `headgate up`, clients of gRPC hear of the end before tasks
stop."""

import contextlib
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.commands.pipelines import Up
from support.commands.worker import HeadgateWorker
from support.kafka.broker import Found
from support.task.slow_to_stop import STOP_S

from headgate_grpc.client import HeadgateError, connect
from headgate_grpc.v1 import connector_service_pb2 as pb
from local_kafka.jvm import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

TESTS = Path(__file__).resolve().parents[1]
Health = health_pb2.HealthCheckResponse
SLOW = {"connector.class": "support.task.slow_to_stop:SlowToStop", "n": "1"}
PIPELINE = """
[cluster]
data = "state"
runner = "process"

[connectors.c]
"connector.class" = "support.task.slow_to_stop:SlowToStop"
n = 1
"""


def test_health_says_so_before_tasks_are_stopped(
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    properties = {
        "bootstrap.servers": kafka_broker.address,
        "group.id": kafka_name,
        "headgate.grpc.listeners": f"grpc://{address}",
    }
    with (
        contextlib.closing(HeadgateWorker(tmp_path / "worker", properties)) as worker,
        connect(f"grpc://{address}") as client,
        grpc.insecure_channel(address) as channel,
    ):
        worker.start()
        client.create("c", SLOW)
        client.wait("c", timeout_s=60)
        told = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(told).status == Health.SERVING
        watch = client.connectors.WatchConnectors(pb.WatchConnectorsRequest())
        assert next(watch).reset
        begun = time.monotonic()
        worker.terminate()
        assert next(told).status == Health.NOT_SERVING
        assert time.monotonic() - begun < STOP_S, "its task is still stopping"
        with pytest.raises(grpc.RpcError) as caught:
            for _ in watch:
                pass
        assert time.monotonic() - begun >= STOP_S, "until nothing runs any more"
        error = HeadgateError.of(caught.value)
        assert (error.code, error.reason) == ("UNAVAILABLE", "NOT_READY")


def test_headgate_up_says_so_before_its_workers_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    up, address = Up(tmp_path).start(), f"unix:{tmp_path / 'state/grpc.sock'}"
    assert up.process is not None
    try:
        up.wait_for("a socket", lambda: (tmp_path / "state/grpc.sock").is_socket(), 30)
        with connect(address) as client, grpc.insecure_channel(address) as channel:
            up.wait_for("c", lambda: any(each.settled for each in client.list()), 40)
            told = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert next(told).status == Health.SERVING
            begun = time.monotonic()
            up.process.terminate()
            assert next(told).status == Health.NOT_SERVING
            assert time.monotonic() - begun < STOP_S, "its task is still stopping"
        assert up.process.wait(40) == 0
        assert time.monotonic() - begun >= STOP_S
    finally:
        up.clean_up()
