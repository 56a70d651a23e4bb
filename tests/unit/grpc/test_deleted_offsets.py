"""Offsets that a deleted connector has left on a real worker are changed by gRPC, by REST, and by
command."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from support.grpc.worker import Served, grpc_worker
from support.rest.world import wait_until
from typer.testing import CliRunner

from headgate_grpc.client import HeadgateError
from headgate_grpc.v1 import connector_pb2
from headgate_runtime.command.parser import app

SOURCE, SINK = connector_pb2.CONNECTOR_TYPE_SOURCE, connector_pb2.CONNECTOR_TYPE_SINK
READ = {"connector.class": "FileStreamSource", "topic": "t", "tasks.max": "1"}
WRITE = {"connector.class": "FileStreamSink", "topics": "t", "tasks.max": "1"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with grpc_worker(tmp_path_factory.mktemp("left")) as served:
        yield served


def left(served: Served, folder: Path) -> dict[str, Any]:
    """A source and a sink ran and were deleted; the source's partition."""
    client, file = served.client, folder / "in.txt"
    file.write_text("a\nb\nc\n")
    client.create("in", {**READ, "file": str(file)})
    client.create("out", {**WRITE, "file": str(folder / "out.txt")})
    wait_until(lambda: len(client.read_offsets("in")) == 1, 20)
    # Of a sink it is told what its task has committed: when it ends, everything.
    wait_until(lambda: (folder / "out.txt").exists() and (folder / "out.txt").read_text() != "", 20)
    for name in ("in", "out"):
        client.stop(name)
        client.wait(name)
        client.delete(name)
        client.wait(name, deleted=True)
    return {"filename": str(file)}


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--url", url])


def http(served: Served, method: str, path: str) -> tuple[int, Any]:
    answer = httpx.request(method, served.rest.url.rstrip("/") + path, timeout=30)
    return answer.status_code, answer.json()


def test_what_is_left_is_shown_and_reset_over_grpc(served: Served, tmp_path: Path) -> None:
    partition, client = left(served, tmp_path), served.client
    (offset,) = client.read_deleted_offsets("in", SOURCE)
    assert json.loads(offset.partition_json) == partition
    (reached,) = client.read_deleted_offsets("out", SINK)
    assert json.loads(reached.partition_json) == {"kafka_topic": "t", "kafka_partition": 0}
    assert "reset" in client.reset_deleted_offsets("in", SOURCE)
    assert "reset" in client.reset_deleted_offsets("out", SINK)
    for name, kind in (("in", SOURCE), ("out", SINK), ("in", SINK), ("never", SOURCE)):
        for ask in (client.read_deleted_offsets, client.reset_deleted_offsets):
            with pytest.raises(HeadgateError) as caught:
                ask(name, kind)
            assert (caught.value.code, caught.value.reason) == ("NOT_FOUND", "NOT_FOUND")
            assert f"connector {name} were found" in caught.value.message
    with pytest.raises(HeadgateError, match="type is not given"):
        client.read_deleted_offsets("in", connector_pb2.CONNECTOR_TYPE_UNSPECIFIED)
    client.create("in", {**READ, "file": partition["filename"]})
    wait_until(lambda: len(client.read_offsets("in")) == 1, 20)
    for ask in (client.read_deleted_offsets, client.reset_deleted_offsets):
        with pytest.raises(HeadgateError, match="Connector in exists") as caught:
            ask("in", SOURCE)
        assert caught.value.code == "ALREADY_EXISTS"
    assert len(client.read_offsets("in")) == 1, "nothing was changed"
    client.delete("in")
    client.reset_deleted_offsets("in", SOURCE)


def test_rest_does_the_same(served: Served, tmp_path: Path) -> None:
    partition = left(served, tmp_path)
    status, body = http(served, "GET", "/offsets/source/in")
    assert (status, [each["partition"] for each in body["offsets"]]) == (200, [partition])
    assert http(served, "GET", "/offsets/source/out")[0] == 404
    assert http(served, "DELETE", "/offsets/source/in")[0] == 200
    assert http(served, "DELETE", "/offsets/source/in")[0] == 404
    assert http(served, "DELETE", "/offsets/sink/out")[0] == 200
    assert http(served, "GET", "/offsets/sink/out")[0] == 404
    served.client.create("in", {**READ, "file": "x"}, connector_pb2.TARGET_STATE_STOPPED)
    for method in ("GET", "DELETE"):
        status, body = http(served, method, "/offsets/source/in")
        assert status == 409 and "Connector in exists" in body["message"]
    served.client.delete("in")


@pytest.mark.parametrize("way", ["grpc", "rest"])
def test_the_commands_show_try_and_reset_it(served: Served, tmp_path: Path, way: str) -> None:
    url = served.address if way == "grpc" else served.rest.url
    partition = left(served, tmp_path)
    shown = run(url, "offsets", "show", "in", "--deleted", "source", "-o", "json")
    (line,) = json.loads(shown.stdout)["offsets"]
    assert line["partition"] == partition
    dry = run(url, "offsets", "reset", "in", "--deleted", "source", "--dry-run")
    assert dry.exit_code == 0 and partition["filename"] in dry.stdout
    again = run(url, "offsets", "show", "in", "--deleted", "source", "-o", "json")
    assert again.stdout == shown.stdout, "a dry run changes nothing"
    if way == "grpc":  # by REST what a deleted connector has left is shown without asking for it
        assert "offsets show in --deleted source (or" in run(url, "offsets", "show", "in").stderr
    assert "offsets reset in --deleted source (or" in run(url, "offsets", "reset", "in").stderr
    for name, kind in (("in", "source"), ("out", "sink")):
        done = run(url, "offsets", "reset", name, "--deleted", kind)
        assert done.exit_code == 0 and "reset successfully" in done.stdout
        gone = run(url, "offsets", "show", name, "--deleted", kind)
        assert gone.exit_code == 1 and "next: try the other type" in gone.stderr
    served.client.create("in", {**READ, "file": "x"}, connector_pb2.TARGET_STATE_STOPPED)
    there = run(url, "offsets", "reset", "in", "--deleted", "source")
    assert there.exit_code == 1 and "next: headgate offsets show in" in there.stderr
    served.client.delete("in")
