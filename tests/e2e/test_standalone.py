"""`headgate standalone` as its user sees it: it runs connectors from files, and its offsets survive
it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support.commands.standalone import OFFSETS, SECONDS, Standalone, until
from support.depth import first_rows
from support.kafka.broker import Found
from support.task.frail_source import CLASS

from headgate_runtime.standalone.offset_file import OffsetFile
from local_kafka.java_connect import Rest

pytestmark = pytest.mark.slow


@pytest.fixture
def standalone(kafka_broker: Found, kafka_name: str, tmp_path: Path) -> Iterator[Standalone]:
    made = Standalone(tmp_path, kafka_broker.address, kafka_name)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


def test_from_files_over_a_restart_to_the_end(standalone: Standalone) -> None:
    own_topic = f"{standalone.topic}-offsets"
    standalone.source["offsets.storage.topic"] = own_topic
    standalone.input.write_text("".join(f"line {n}\n" for n in range(500)))
    standalone.start()
    until("500 lines", lambda: len(standalone.lines()) == 500)
    with Rest(standalone.url) as rest:
        names = sorted([standalone.source["name"], str(standalone.sink["name"])])
        assert sorted(rest.get("/connectors").body) == names
        assert rest.put(f"/connectors/{standalone.source['name']}/stop").status == 204
        assert rest.put(f"/connectors/{standalone.source['name']}/resume").status == 202
        # Java's standalone worker answers these with a status that nobody has asked for.
        for unknown in ("none/restart", "none/tasks/0/restart", f"{names[0]}/tasks/9/restart"):
            assert rest.post(f"/connectors/{unknown}").status == 404
        assert rest.get("/connectors/none/status").status == 404
        tasks = rest.get(f"/connectors/{names[0]}/status").body["tasks"]
        assert [(task["id"], task["state"]) for task in tasks] == [(0, "RUNNING")]
        fenced = rest.put(f"/connectors/{names[0]}/fence")
        assert (fenced.status, "in standalone mode" in fenced.body["message"]) == (500, True)
        made = rest.create("another", {**standalone.source, "name": "another"})
        assert (made.status, made.body["tasks"]) == (201, [{"connector": "another", "task": 0}])
        assert rest.delete("/connectors/another").status == 204
    assert own_topic not in topics(standalone)  # it is ignored, as in Connect
    code, said = standalone.stop()
    assert code == 0, said
    (offset,) = standalone.offsets.load().values()
    assert json.loads(offset or b"") == {"position": standalone.input.stat().st_size}

    with standalone.input.open("a") as file:
        file.write("one more\n")
    standalone.start()
    until("one more line", lambda: standalone.lines()[500:] == ["one more"])
    with Rest(standalone.url) as rest:
        path = f"/connectors/{standalone.source['name']}"
        assert rest.put(f"{path}/stop").status == 204
        end = {"position": standalone.input.stat().st_size}
        # The answer does not wait for the end of the task, which commits.
        until("the end", lambda: rest.get(f"{path}/offsets").body["offsets"][0]["offset"] == end)
        (before,) = rest.get(f"{path}/offsets").body["offsets"]
        altered = {**before, "offset": {"position": len("line 0\n")}}
        assert rest.patch(f"{path}/offsets", {"offsets": [altered]}).status == 200
        until("the file", lambda: written(standalone) == [altered["offset"]])
        assert rest.get(f"{path}/offsets").body == {"offsets": [altered]}
        assert rest.delete(f"{path}/offsets").status == 200
        until("the file", lambda: written(standalone) == [])
        assert rest.get(f"{path}/offsets").body == {"offsets": []}
    assert standalone.stop()[0] == 0
    assert len(standalone.lines()) == 501


def topics(standalone: Standalone) -> set[str]:
    address = standalone.properties["bootstrap.servers"]
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    return set(client.list_topics(timeout=SECONDS).topics)


def written(standalone: Standalone) -> list[object]:
    """Source offsets in the file."""
    return [json.loads(value) for value in standalone.offsets.load().values() if value is not None]


@pytest.mark.exhaustive
def test_offsets_that_cannot_be_written_at_the_end(standalone: Standalone) -> None:
    folder = standalone.folder / "moved"
    folder.mkdir()
    standalone.properties[OFFSETS] = str(folder / "connect.offsets")
    standalone.input.write_text("a line\n")
    standalone.start()
    until("offsets", lambda: OffsetFile(folder / "connect.offsets").load())
    folder.rename(standalone.folder / "elsewhere")
    with standalone.input.open("a") as file:
        file.write("one more\n")
    until("one more line", lambda: len(standalone.lines()) == 2)
    code, said = standalone.stop()
    assert code == 1
    assert "Traceback" not in said
    (last,) = said.splitlines()[-1:]
    assert f"{OFFSETS}: {folder}/connect.offsets cannot be written: No such file" in last
    assert "the last source offsets were not written" in last


@pytest.mark.parametrize(
    ("change", "code", "said"),
    first_rows(
        3,
        [
            (
                lambda s: s.source.pop("topic"),
                3,
                "source.properties: Connector configuration is inv",
            ),
            (
                lambda s: s.source.update({"exactly.once.support": "required"}),
                3,
                "This worker does not have exactly-once source support enabled",
            ),
            (
                lambda s: s.source.update({"connector.class": CLASS, "fails": "start"}),
                3,
                "to state STARTED: RuntimeError: no such database",
            ),
            (
                lambda s: s.source.update({"connector.class": CLASS, "fails": "task_configs"}),
                3,
                "gave no task configs: RuntimeError: no such database",
            ),
            (lambda s: s.source.pop("name"), 2, "expected the connector's name under the key name"),
            (lambda s: s.sink.update(name=s.source["name"]), 2, "is in an earlier file too"),
            (lambda s: s.offsets.path.write_text("?"), 1, "is not a file of source offsets"),
            (
                lambda s: s.properties.update({OFFSETS: "none/offsets"}),
                1,
                f"worker.properties: {OFFSETS}: none/offsets cannot be written: No such file",
            ),
            (
                lambda s: s.properties.update({"group.id": "g", "headgate.task.runner": "x"}),
                2,
                "'x' is none of spark, process, thread",
            ),
        ],
    ),
    ids=[
        "config",
        "exactly once",
        "start",
        "task configs",
        "name",
        "twice",
        "offsets",
        "folder",
        "worker",
    ],
)
def test_refused(standalone: Standalone, change: Any, code: int, said: str) -> None:
    change(standalone)
    process = standalone.start()
    _, error = process.communicate(timeout=SECONDS)
    for before in error.split("\nTraceback")[:-1]:  # what a connector raised follows its status
        assert any("runtime.worker.status: " in line for line in before.splitlines()[-2:])
    assert said in error
    assert process.returncode == code
