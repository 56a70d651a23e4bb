"""Every worker of a group on a real broker shows a call into a connector that does not return."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kafka.broker import Found
from support.kafka.cluster import await_true
from support.kafka.worker import KafkaWorker, kafka_worker

from headgate.herder.messages import DescribeWorker, ErrorKind, Failure
from headgate_grpc import cluster_watch
from headgate_grpc.client import Client
from headgate_grpc.client.watching import WorkerChange
from headgate_rest.peer import PeerClient
from headgate_runtime.remote import commands, connectors
from headgate_runtime.remote.over_grpc import GrpcRemote
from headgate_runtime.tasks import long_calls

pytestmark = pytest.mark.slow

INTERNAL = {"headgate_grpc_listeners": "grpc://127.0.0.1:0", "headgate_grpc_internal": "true"}
BY_HTTP = {"headgate_grpc_listeners": "grpc://127.0.0.1:0"}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_calls, "LONG_S", 0.5)
    monkeypatch.setattr(long_calls, "LOOK_S", 0.1)
    monkeypatch.setattr(cluster_watch, "OTHERS_S", 0.5)


@contextlib.contextmanager
def two_workers(
    folder: Path, broker: Found, group: str, settings: dict[str, str]
) -> Iterator[tuple[KafkaWorker, KafkaWorker]]:
    with contextlib.ExitStack() as stack:
        one, two = [
            stack.enter_context(kafka_worker(folder / name, broker.address, group, **settings))
            for name in ("one", "two")
        ]

        def both() -> bool:
            views = [each.worker.herder.view() for each in (one, two)]
            return len({view.generation for view in views}) == 1 and all(
                view.settled for view in views
            )

        await_true("both are in the group", both, 60)
        yield one, two


@pytest.mark.parametrize("settings", [INTERNAL, BY_HTTP], ids=["grpc", "http"])
def test_the_worker_that_is_asked_need_not_run_the_task(
    tmp_path: Path,
    kafka_broker: Found,
    kafka_name: str,
    settings: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    go_on = tmp_path / "go-on"
    config = {"connector.class": "support.task.connectors:WaitingSource", "file": str(go_on)}
    with two_workers(tmp_path, kafka_broker, kafka_name, settings) as (one, two):
        try:
            assert one.rest.create("slow", config).status == 201
            one.rest.await_tasks("slow", ["RUNNING"])
            runs = {each.url: bool(each.worker.herder.view().tasks) for each in (one, two)}
            (other,) = [each for each in (one, two) if not runs[each.url]]
            remote = GrpcRemote(other.grpc)
            await_true("the call", lambda: remote.work(remote.cluster(), ()).long_calls, 30)
            cluster = remote.cluster()
            (told,) = remote.work(cluster, ()).long_calls
            assert (told["task"], told["connector"], told["method"]) == ("slow-0", "slow", "poll")
            assert [each["answers"] for each in cluster["workers"]] == [True, True]
            assert not remote.work(cluster, ()).unknown
            remote.close()
            words = r"slow-0 is in poll for \d+ s; the log of its worker says where"
            commands.status(other.grpc)
            connectors.show_connector(["slow"], url=other.grpc)
            assert len(re.findall(words, capsys.readouterr().out)) == 2
            assert watched_call(other.grpc) == ("slow-0", "poll")
        finally:
            go_on.touch()


def watched_call(address: str) -> tuple[str, str]:
    """The first call that a watch of the cluster tells of."""
    with Client(address, timeout_s=30) as client:
        for change in client.watch_cluster():
            assert isinstance(change, WorkerChange)
            if change.worker is not None and change.worker.long_calls:
                call = change.worker.long_calls[0]
                return call.task, call.method
    raise AssertionError("a watch has no end")


def test_a_worker_that_does_not_tell_is_named(
    tmp_path: Path,
    kafka_broker: Found,
    kafka_name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Java worker does not report hanging calls: its REST server does not know the path."""
    plain = PeerClient.call

    def call(client: PeerClient, url: str, call: Any, *given: Any) -> Any:
        if isinstance(call, DescribeWorker):
            return Failure(ErrorKind.NOT_FOUND, "HTTP 404 Not Found")
        return plain(client, url, call, *given)

    monkeypatch.setattr(PeerClient, "call", call)
    with two_workers(tmp_path, kafka_broker, kafka_name, BY_HTTP) as (one, _):
        commands.status(one.grpc)
        words = r"whether calls into connectors return on \S+ is not known: "
        assert re.search(words + "it is a Java worker", capsys.readouterr().out)
