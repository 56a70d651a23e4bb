"""What ``headgate status`` shows of tasks, over gRPC and over REST alike: last batches of sinks,
and calls that do not return."""

import json
import re
import threading
import time
from pathlib import Path

import httpx
import pytest
from support.grpc.worker import grpc_worker

from headgate import wire
from headgate.connector.api import SourceConnector
from headgate.connector.config import ConfigDef
from headgate.herder import messages as m
from headgate.ids import TargetState
from headgate_grpc.v1 import cluster_service_pb2 as cluster_pb2
from headgate_runtime.observe.metrics import metrics
from headgate_runtime.remote import commands, connectors, show
from headgate_runtime.remote.over_grpc import GrpcRemote
from headgate_runtime.remote.over_rest import RestRemote
from headgate_runtime.remote.remote import ConnectorRow, Remote, TaskRow, Work
from headgate_runtime.tasks import long_calls

TESTS = Path(__file__).parents[2]
LINES = 7


def test_batches_over_grpc_and_over_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))  # the sink's task is another process
    (tmp_path / "in.txt").write_text("line\n" * LINES)
    source = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "t"}
    sink = {"connector.class": "support.task.connectors:PlannedSink", "topics": "t"}
    runner = {"headgate.task.runner": "process"}
    with grpc_worker(tmp_path / "state", runner) as served:
        remotes: list[Remote] = [GrpcRemote(served.address), RestRemote(served.rest.url)]
        assert remotes[0].work(remotes[0].cluster(), remotes[0].rows()).batches == []
        remotes[0].create("lake", sink, TargetState.STARTED)
        remotes[0].create("lines", source, TargetState.STARTED)
        for remote in remotes:
            deadline = time.monotonic() + 60
            found: list[object] = []
            while not found:
                assert time.monotonic() < deadline, remote.rows()
                cluster, rows = remote.cluster(), remote.rows()
                found = list(remote.work(cluster, rows).batches)
                time.sleep(0.1)
            (batch,) = remote.work(cluster, rows).batches
            assert (batch["task"], batch["number"], batch["records"]) == ("lake-0", 1, LINES)
            shown = show.status(cluster, rows, remote.where, Work([batch])).splitlines()
            assert shown[-2].split() == ["TASK", "LAST", "BATCH"]
            assert shown[-1].startswith(f"lake-0  batch 1: {LINES} records took 0.")
            remote.close()
        commands.status(served.rest.url, commands.Output.JSON)
        (told,) = json.loads(capsys.readouterr().out)["batches"]
        assert told == batch
        await_records(served.rest.url, "lake", "lines")


def await_records(url: str, *connectors: str) -> None:
    """The figures of tasks in processes of their own come to the worker's metrics."""
    wanted = [
        rf'headgate_task_call_records_sum{{connector="{each}".* {LINES}\.0' for each in connectors
    ]
    deadline, scraped = time.monotonic() + 30, ""
    while not all(re.search(each, scraped) for each in wanted):
        assert time.monotonic() < deadline, scraped
        time.sleep(0.1)
        view = httpx.get(f"{url}headgate/worker").json()
        scraped = metrics([wire.from_plain(m.WorkerView, view)]).decode()


def test_a_call_that_hangs_is_shown_beside_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(long_calls, "LONG_S", 0.3)
    monkeypatch.setattr(long_calls, "LOOK_S", 0.05)
    go_on = tmp_path / "go-on"
    config = {"connector.class": "support.task.connectors:WaitingSource", "file": str(go_on)}
    with grpc_worker(tmp_path / "state", {"headgate.task.runner": "thread"}) as served:
        remotes: list[Remote] = [GrpcRemote(served.address), RestRemote(served.rest.url)]
        remotes[0].create("slow", config, TargetState.STARTED)
        for remote in remotes:
            await_call(remote, 1)
            cluster, rows = remote.cluster(), remote.rows()
            (told,) = remote.work(cluster, rows).long_calls
            assert (told["task"], told["method"]) == ("slow-0", "poll")
            assert 300 <= told["took_ms"] < 60_000
            assert rows[0].tasks[0].state == "RUNNING"
        told_of(served.rest.url, capsys, r"slow-0 is in poll for \d+ s; the log of its worker says")
        commands.status(served.rest.url, commands.Output.JSON)
        assert json.loads(capsys.readouterr().out)["long_calls"][0]["method"] == "poll"
        view = httpx.get(f"{served.rest.url}headgate/worker").json()
        scraped = metrics([wire.from_plain(m.WorkerView, view)]).decode()
        assert 'headgate_task_call_seconds{connector="slow",method="poll",task="0"' in scraped
        go_on.touch()
        for remote in remotes:
            await_call(remote, 0)
            remote.close()


def told_of(url: str, capsys: pytest.CaptureFixture[str], words: str) -> None:
    """Both commands for people say it."""
    commands.status(url)
    connectors.show_connector(["slow"], url=url)
    assert len(re.findall(words, capsys.readouterr().out)) == 2


def await_call(remote: Remote, count: int) -> None:
    deadline = time.monotonic() + 30
    while len(remote.work(remote.cluster(), remote.rows()).long_calls) != count:
        assert time.monotonic() < deadline, remote.rows()
        time.sleep(0.05)


class HangingConnector(SourceConnector):
    """Hangs where it is told to until there is a ``file``."""

    hangs: str
    file: Path

    @classmethod
    def config_def(cls) -> ConfigDef:
        cls.hang("validate")
        return ConfigDef()

    def start(self, config: object) -> None:
        self.hang("start")

    @classmethod
    def hang(cls, method: str) -> None:
        while cls.hangs == method and not cls.file.exists():
            time.sleep(0.02)


def test_validations_that_users_ask_for_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two that validate the same, the first is told: metrics have one value for each."""
    monkeypatch.setattr(long_calls, "LONG_S", 0.3)
    monkeypatch.setattr(long_calls, "LOOK_S", 0.05)
    HangingConnector.hangs, HangingConnector.file = "validate", tmp_path / "go-on"
    config = {"connector.class": f"{__name__}:HangingConnector"}
    request = cluster_pb2.ValidateConfigRequest(config={**config, "name": "new"})
    with grpc_worker(tmp_path / "state", {"headgate.task.runner": "thread"}) as served:
        remote = GrpcRemote(served.address)
        asking = [
            threading.Thread(
                target=lambda: served.client.cluster.ValidateConfig(request), daemon=True
            )
            for _ in range(2)
        ]
        try:
            for each in asking:
                each.start()
            await_call(remote, 1)
            time.sleep(0.5)  # both count by now
            commands.status(served.address)
            assert re.search(r"new is in validate for \d+ s; the log", capsys.readouterr().out)
            view = httpx.get(f"{served.rest.url}headgate/worker").json()
            scraped = metrics([wire.from_plain(m.WorkerView, view)]).decode()
            sample = r'(?m)^headgate_connector_call_seconds{connector="new"'
            assert len(re.findall(sample, scraped)) == 1
        finally:
            HangingConnector.file.touch()
            for each in asking:
                each.join(30)
        await_call(remote, 0)
        remote.close()


@pytest.mark.parametrize("method", ["start", "validate"])
def test_a_method_of_the_connector_itself_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    monkeypatch.setattr(long_calls, "LONG_S", 0.3)
    monkeypatch.setattr(long_calls, "LOOK_S", 0.05)
    HangingConnector.hangs, HangingConnector.file = method, tmp_path / "go-on"
    config = {"connector.class": f"{__name__}:HangingConnector"}
    with grpc_worker(tmp_path / "state", {"headgate.task.runner": "thread"}) as served:
        remotes: list[Remote] = [GrpcRemote(served.address), RestRemote(served.rest.url)]
        creating = threading.Thread(
            target=lambda: remotes[0].create("slow", config, TargetState.STARTED), daemon=True
        )
        creating.start()
        try:
            for remote in remotes:
                await_call(remote, 1)
                (told,) = remote.work(remote.cluster(), remote.rows()).long_calls
                assert (told["task"], told["connector"]) == ("", "slow")
                assert told["method"] == method
            commands.status(served.address)
            assert re.search(rf"slow is in {method} for \d+ s; the log", capsys.readouterr().out)
        finally:
            HangingConnector.file.touch()
            creating.join(30)
        for remote in remotes:
            await_call(remote, 0)
            remote.close()


def test_status_names_work_whose_worker_is_not_in_the_group() -> None:
    """As after `kill -9` of a worker, until the rebalance delay is over."""
    worker = dict.fromkeys(("leader", "answers", "member"), True)
    worker |= {"worker_id": "a:1", "connector_count": 1, "task_count": 1}
    cluster = {"group_id": "g", "workers": [{**worker, "pending": [], "set_aside": []}]}
    states = [("a:1", "RUNNING"), ("b:1", "RUNNING"), ("b:1", "UNASSIGNED"), ("", "")]
    tasks = tuple(TaskRow(n, state, worker=who) for n, (who, state) in enumerate(states))
    row = ConnectorRow("in", "source", "PAUSED", worker="c:1", tasks=tasks)
    shown = show.status({**cluster, "others_unknown": ""}, [row], "here").splitlines()
    assert shown[-2:] == [
        "b:1 is not in the group; it had in-1",
        "c:1 is not in the group; it had in",
    ]
    many = tuple(TaskRow(n, "RUNNING", worker="b:1") for n in range(1_007))
    row = ConnectorRow("in", "source", "RUNNING", worker="a:1", tasks=many)
    shown = show.status({**cluster, "others_unknown": ""}, [row], "here").splitlines()
    assert shown[-1].endswith("it had in-0, in-1, in-2, in-3, in-4 and 1,002 more")
    unknown = show.status({**cluster, "others_unknown": "no answer"}, [row], "here")
    assert "not in the group" not in unknown
