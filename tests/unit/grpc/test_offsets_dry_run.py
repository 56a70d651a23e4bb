"""A dry run of a change of offsets, on a real worker, says what the change then does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from support.grpc.worker import Served, grpc_worker
from support.rest.world import wait_until
from typer.testing import CliRunner

from headgate_grpc.client import HeadgateError
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb
from headgate_runtime.command.parser import app

NAME = "lines"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A worker with a stopped source that has read some lines."""
    folder = tmp_path_factory.mktemp("dry")
    (folder / "in.txt").write_text("a\nb\nc\n")
    with grpc_worker(folder) as served:
        client = served.client
        config = {"connector.class": "FileStreamSource", "topic": "t", "tasks.max": "1"}
        client.create(NAME, {**config, "file": str(folder / "in.txt")})
        wait_until(lambda: len(client.read_offsets(NAME)) == 1, 20)
        client.stop(NAME)
        client.wait(NAME)
        yield served


def offsets(served: Served) -> list[tuple[Any, Any]]:
    found = served.client.read_offsets(NAME)
    return [(json.loads(each.partition_json), json.loads(each.offset_json)) for each in found]


def alter(served: Served, changes: list[tuple[Any, Any]], **more: Any) -> Any:
    given = [
        connector_pb2.ConnectorOffset(
            partition_json=json.dumps(partition),
            offset_json="" if offset is None else json.dumps(offset),
        )
        for partition, offset in changes
    ]
    request = pb.AlterOffsetsRequest(name=NAME, offsets=given, **more)
    return served.client.connectors.AlterOffsets(request, timeout=20)


def differences(answer: Any) -> list[tuple[Any, Any, Any]]:
    return [
        (
            json.loads(each.partition_json),
            json.loads(each.before_json or "null"),
            json.loads(each.after_json or "null"),
        )
        for each in answer.differences
    ]


def test_a_dry_run_says_what_the_change_then_does(served: Served) -> None:
    before = offsets(served)
    ((partition, offset),) = before
    changed = {**offset, "position": 2}
    wanted = [(partition, changed), ({"filename": "other"}, {"position": 2**53 + 1})]
    dry = alter(served, wanted, dry_run=True)
    assert differences(dry) == [
        (partition, offset, changed),
        ({"filename": "other"}, None, {"position": 2**53 + 1}),
    ]
    assert "dry run" in dry.message and offsets(served) == before
    done = alter(served, wanted[:1])
    assert not done.differences and offsets(served) == [(partition, changed)]
    assert not differences(alter(served, wanted[:1], dry_run=True)), "it is so already"
    reset = served.client.connectors.ResetOffsets(
        pb.ResetOffsetsRequest(name=NAME, dry_run=True), timeout=20
    )
    assert differences(reset) == [(partition, changed, None)]
    assert offsets(served) == [(partition, changed)]
    alter(served, before)


def test_what_the_change_would_be_refused_for_the_dry_run_is(served: Served) -> None:
    client = served.client
    partition = {"filename": "x"}
    with pytest.raises(Exception, match="expected a JSON object"):
        alter(served, [(partition, 5)], dry_run=True)
    with pytest.raises(Exception, match="expected etag 1"):
        alter(served, [(partition, None)], dry_run=True, etag="1")
    client.resume(NAME)
    client.wait(NAME)
    with pytest.raises(Exception, match="must be in the STOPPED state"):
        alter(served, [(partition, None)], dry_run=True)
    with pytest.raises(HeadgateError, match="NOT_FOUND"):
        client._ask(
            client.connectors.ResetOffsets,
            pb.ResetOffsetsRequest(name="unknown", dry_run=True),
            pb.ResetOffsetsResponse,
        )
    client.stop(NAME)
    client.wait(NAME)


@pytest.mark.parametrize("way", ["grpc", "rest"])
def test_the_command_shows_it(served: Served, tmp_path: Path, way: str) -> None:
    url = served.address if way == "grpc" else served.rest.url
    ((partition, offset),) = before = offsets(served)

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, ["offsets", *words, "--dry-run", "--url", url])

    changes = tmp_path / "changes.json"
    changes.write_text(
        json.dumps({"offsets": [{"partition": partition, "offset": {"position": 2}}]})
    )
    done = run("set", NAME, str(changes))
    assert done.exit_code == 0, done.output
    head, line = done.output.splitlines()
    assert head.split() == ["PARTITION", "OFFSET", "WOULD", "BE"]
    assert json.dumps(partition) in line and line.endswith('{"position": 2}')
    assert run("reset", NAME).output.splitlines()[1].endswith("null")
    assert offsets(served) == before
    unchanged = {"partition": partition, "offset": offset}
    changes.write_text(json.dumps({"offsets": [unchanged]}))
    assert run("set", NAME, str(changes)).output == "nothing would change\n"
