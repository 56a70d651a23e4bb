"""Etags and config offsets on three real workers, by gRPC and by HTTP. No change is lost, and each
worker shows what another has acknowledged."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from click.testing import Result
from support.depth import tries
from support.grpc.worker import Served, grpc_worker
from support.rest.world import wait_until
from typer.testing import CliRunner

from headgate_grpc.client import HeadgateError
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb
from headgate_runtime.command.parser import app
from headgate_runtime.remote.over_grpc import GrpcRemote
from headgate_runtime.remote.over_rest import RestRemote

SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
SECONDS = {"heartbeat.interval.ms": "500", "scheduled.rebalance.max.delay.ms": "0"}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, ...]]:
    """The leader, and two other workers of its group."""
    folder = tmp_path_factory.mktemp("etags")
    with ExitStack() as stack:
        workers = [stack.enter_context(grpc_worker(folder, SECONDS)) for _ in range(3)]
        wait_until(lambda: all(each.worker.herder.view().leader != "" for each in workers), 20)
        wait_until(lambda: all(each.worker.herder.view().settled for each in workers), 20)
        yield tuple(sorted(workers, key=lambda each: not each.worker.herder.leads))


@pytest.fixture(scope="module")
def two(three: tuple[Served, ...]) -> tuple[Served, Served]:
    return three[0], three[1]


def refused(error: HeadgateError) -> bool:
    return (error.code, error.reason) == ("ABORTED", "ETAG_MISMATCH")


def test_what_is_written_through_one_is_read_through_each_other(three: tuple[Served, ...]) -> None:
    """Configs as a whole and by keys, target states, and deletions."""
    written = SINK
    for number in range(tries(40, 1_000)):
        writer = three[number % 3]
        config, target = {**SINK, "number": str(number)}, connector_pb2.TARGET_STATE_PAUSED
        if number % 4 == 0:
            offset = writer.client.put_config("own", config).config_offset
            writer.client.pause("own")
        elif number % 4 == 1:
            offset = int(writer.client.patch_config("own", {"number": str(number)}).etag)
        elif number % 4 == 2:
            config, target = written, connector_pb2.TARGET_STATE_STOPPED
            offset = writer.client.stop("own").config_offset
        else:
            offset = writer.client.delete("own").config_offset
        written = config
        for reader in three:
            if reader is writer:
                continue
            request = pb.GetConnectorRequest(name="own", min_config_offset=offset)
            if number % 4 == 3:
                with pytest.raises(grpc.RpcError) as caught:
                    reader.client.connectors.GetConnector(request, timeout=20)
                assert HeadgateError.of(caught.value).code == "NOT_FOUND", number
                continue
            answer = reader.client.connectors.GetConnector(request, timeout=20)
            assert answer.config_offset >= offset
            shown = answer.connector
            assert dict(shown.config) == {**config, "name": "own"}, number
            if number % 4 > 0:
                assert (shown.etag, shown.target_state) == (str(offset), target), number


def test_a_list_and_a_wait_show_what_was_written_before(two: tuple[Served, Served]) -> None:
    leader, other = two
    changed = leader.client.put_config("own", {**SINK, "number": "last"})
    assert other.client.wait("own").config["number"] == "last", changed
    paused = other.client.pause("own")
    for client in (leader.client, other.client):
        (row,) = client.list(names=["own"], min_config_offset=paused.config_offset)
        assert row.target_state == connector_pb2.TARGET_STATE_PAUSED and row.etag == paused.etag
    gone = leader.client.delete("own")
    with pytest.raises(HeadgateError, match="NOT_FOUND"):
        other.client.get("own", min_config_offset=gone.config_offset)


def test_a_read_of_an_offset_of_nowhere_ends_at_its_deadline(two: tuple[Served, Served]) -> None:
    _, other = two
    with pytest.raises(HeadgateError, match="DEADLINE_EXCEEDED"):
        other.client._ask(
            other.client.connectors.ListConnectors,
            pb.ListConnectorsRequest(min_config_offset=10**12),
            pb.ListConnectorsResponse,
            1.0,
        )
    with pytest.raises(HeadgateError, match="min_config_offset is -1"):
        list(other.client.list(min_config_offset=-1))


def test_no_change_is_lost_among_four_who_count(two: tuple[Served, Served]) -> None:
    """Each reads, adds one and writes with the etag that it read, until that succeeds."""
    leader, other = two
    made = leader.client.put_config("count", {**SINK, "n": "0"})
    each_adds, mismatches = tries(25, 1_000), []

    def by_grpc(served: Served) -> None:
        for _ in range(each_adds):
            while True:
                found = served.client.get("count", min_config_offset=made.config_offset)
                config = {**found.config, "n": str(int(found.config["n"]) + 1)}
                try:
                    served.client.put_config("count", config, etag=found.etag)
                    break
                except HeadgateError as error:
                    assert refused(error), error
                    mismatches.append(error)

    def by_http(served: Served) -> None:
        with httpx.Client(base_url=served.rest.url, timeout=30) as client:
            for _ in range(each_adds):
                while True:
                    found = client.get("/connectors/count/config")
                    changes = {"n": str(int(found.json()["n"]) + 1)}
                    answer = client.patch(
                        "/connectors/count/config",
                        json=changes,
                        headers={"If-Match": found.headers["ETag"]},
                    )
                    if answer.status_code == 200:
                        break
                    assert answer.status_code == 412, answer.text
                    mismatches.append(answer)

    wait_until(lambda: "count" in other.worker.herder.state.entries, 20)
    ways = [(way, each) for way in (by_grpc, by_http) for each in two]
    threads = [threading.Thread(target=way, args=(each,)) for way, each in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mismatches, "they never met"
    final = leader.client.get("count").config["n"]
    assert final == str(each_adds * len(threads))


def test_every_change_takes_an_etag_and_refuses_an_old_one(two: tuple[Served, Served]) -> None:
    _leader, other = two
    client = other.client
    old = client.create("each", SINK).etag
    now = client.put_config("each", {**SINK, "n": "1"}, etag=old).connector.etag
    for change in (
        lambda: client.put_config("each", SINK, etag=old),
        lambda: client.patch_config("each", {"n": "2"}, etag=old),
        lambda: client.delete("each", etag=old),
        lambda: client.pause("each", etag=old),
        lambda: client.resume("each", etag=old),
        lambda: client.stop("each", etag=old),
    ):
        with pytest.raises(HeadgateError) as caught:
            change()
        assert refused(caught.value) and not caught.value.may_be_repeated
        assert f"its etag is {now}, expected etag {old}" in caught.value.message
    with pytest.raises(HeadgateError, match="INVALID_ARGUMENT: etag is 'x'"):
        client.delete("each", etag="x")
    for step in (client.pause, client.resume, client.stop):
        now = step("each", etag=now).etag
    with pytest.raises(HeadgateError) as caught:
        client.reset_offsets("each", etag=old)
    assert refused(caught.value)
    client.delete("each", etag=now)


def test_a_condition_by_http_that_does_not_hold_is_412(two: tuple[Served, Served]) -> None:
    _leader, other = two
    with httpx.Client(base_url=other.rest.url, timeout=30) as client:
        made = client.put("/connectors/rest/config", json=SINK)
        assert (
            made.status_code == 201
            and made.headers["ETag"].strip('"') == (made.headers["Headgate-Config-Offset"])
        )
        old = {"If-Match": made.headers["ETag"]}
        paused = client.put("/connectors/rest/pause", headers=old)
        assert paused.status_code == 202
        answer = client.delete("/connectors/rest", headers=old)
        assert answer.status_code == 412 and "expected etag" in answer.json()["message"]
        assert client.get("/connectors/rest").headers["ETag"] == paused.headers["ETag"]
        gone = client.delete("/connectors/rest", headers={"If-Match": paused.headers["ETag"]})
        assert gone.status_code == 204 and "ETag" not in gone.headers


def command(served: Served, *words: str, editor: str = "true") -> Result:
    return CliRunner().invoke(
        app, [*words, "--url", served.address], env={"EDITOR": editor, "VISUAL": editor}
    )


def test_what_is_edited_is_written_unless_somebody_else_was_faster(
    two: tuple[Served, Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = two
    other.client.create("edited", {**SINK, "n": "0"})
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/\\"n\\": \\"0\\"/\\"n\\": \\"1\\"/" "$1"\n')
    editor.chmod(0o700)
    done = command(other, "connectors", "edit", "edited")
    assert done.exit_code == 0 and done.output == "edited unchanged\n"
    done = command(other, "connectors", "edit", "edited", editor=str(editor))
    assert (done.exit_code, done.output) == (0, "edited changed\n")
    assert other.client.get("edited").config["n"] == "1"

    def edited(text: str) -> str:
        other.client.pause("edited")
        return text.replace('"1"', '"2"')

    monkeypatch.setattr("headgate_runtime.remote.connectors._edited", edited)
    done = command(other, "connectors", "edit", "edited")
    assert done.exit_code == 1
    assert "somebody else has changed it" in done.output
    kept = Path(done.output.rpartition("what you wrote is in ")[2].strip())
    assert '"n": "2"' in kept.read_text()
    kept.unlink()


def test_apply_does_not_overwrite_what_somebody_else_has_just_written(
    two: tuple[Served, Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = two
    other.client.create("applied", {**SINK, "n": "0"})
    file = tmp_path / "applied.json"
    file.write_text(json.dumps({"name": "applied", "config": {**SINK, "n": "1"}}))
    rows = GrpcRemote.rows

    def then_another_writes(self: GrpcRemote, *given: Any) -> Any:
        found = rows(self, *given)
        other.client.patch_config("applied", {"by": "another"})
        return found

    monkeypatch.setattr(GrpcRemote, "rows", then_another_writes)
    done = command(other, "connectors", "apply", str(file))
    assert done.exit_code == 1 and "somebody else has changed it" in done.output
    monkeypatch.undo()
    assert command(other, "connectors", "apply", str(file)).stdout == "applied changed\n"
    assert "by" not in other.client.get("applied").config


@pytest.mark.parametrize("moment", ["rows", "row"])
def test_apply_over_rest_does_not_either(
    two: tuple[Served, Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A listing by REST tells no etags, so each connector that differs is read again."""
    _, other = two
    name = f"rested-{moment}"
    other.client.create(name, {**SINK, "n": "0"})
    # By REST a connector is listed once it has a status.
    url = other.rest.url
    wait_until(lambda: name in httpx.get(f"{url}connectors?expand=status").json(), 20)
    file = tmp_path / "rested.json"
    file.write_text(json.dumps({"name": name, "config": {**SINK, "n": "1"}}))
    read = getattr(RestRemote, moment)

    def then_another_writes(self: RestRemote, *given: Any) -> Any:
        found = read(self, *given)
        changed = other.client.patch_config(name, {"by": "another"})
        other.client.get(name, min_config_offset=int(changed.etag))
        return found

    monkeypatch.setattr(RestRemote, moment, then_another_writes)
    ask = ["connectors", "apply", str(file), "--url", other.rest.url]
    done = CliRunner().invoke(app, ask)
    assert done.exit_code == 1 and "somebody else has changed it" in done.output
    assert other.client.get(name).config["by"] == "another"
    monkeypatch.undo()
    assert CliRunner().invoke(app, ask).stdout == f"{name} changed\n"
    wait_until(lambda: "by" not in other.client.get(name).config, 10)
