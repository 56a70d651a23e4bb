"""``headgate status`` shows the last batches of sinks, over gRPC and over REST alike."""

import json
import time
from pathlib import Path

import pytest
from support.grpc.worker import grpc_worker

from headgate.ids import TargetState
from headgate_runtime.remote import commands, show
from headgate_runtime.remote.over_grpc import GrpcRemote
from headgate_runtime.remote.over_rest import RestRemote
from headgate_runtime.remote.remote import Remote

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
        assert remotes[0].batches(remotes[0].cluster(), remotes[0].rows()) == []
        remotes[0].create("lake", sink, TargetState.STARTED)
        remotes[0].create("lines", source, TargetState.STARTED)
        for remote in remotes:
            deadline = time.monotonic() + 60
            found: list[object] = []
            while not found:
                assert time.monotonic() < deadline, remote.rows()
                cluster, rows = remote.cluster(), remote.rows()
                found = list(remote.batches(cluster, rows))
                time.sleep(0.1)
            (batch,) = remote.batches(cluster, rows)
            assert (batch["task"], batch["number"], batch["records"]) == ("lake-0", 1, LINES)
            shown = show.status(cluster, rows, remote.where, [batch]).splitlines()
            assert shown[-2].split() == ["TASK", "LAST", "BATCH"]
            assert shown[-1].startswith(f"lake-0  batch 1: {LINES} records took 0.")
            remote.close()
        commands.status(served.rest.url, commands.Output.JSON)
        (told,) = json.loads(capsys.readouterr().out)["batches"]
        assert told == batch
