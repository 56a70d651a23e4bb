"""Offsets that deleted connectors have left on a real broker, under exactly-once, are changed by
way of a follower."""

from pathlib import Path

import httpx
import pytest
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic, read_committed
from support.kafka.worker import KafkaWorker, kafka_worker

pytestmark = pytest.mark.slow

INTERNAL = {"headgate_grpc_listeners": "grpc://127.0.0.1:0", "headgate_grpc_internal": "true"}


def source(folder: Path, topic: str) -> dict[str, str]:
    return {
        "connector.class": "DirectorySource",
        "path": str(folder),
        "topic": topic,
        "tasks.max": "2",
    }


def sink(folder: Path, topic: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSink", "file": str(folder / "out.txt"), "topics": topic}


def delete(client: httpx.Client, worker: KafkaWorker, name: str) -> None:
    assert client.delete(f"/connectors/{name}").status_code == 204
    await_true("gone", lambda: client.get(f"/connectors/{name}").status_code == 404, 20)


def offsets(client: httpx.Client, kind: str, name: str) -> list[object]:
    answer = client.get(f"/offsets/{kind}/{name}")
    assert answer.status_code in (200, 404), answer.text
    found: list[object] = answer.json().get("offsets", [])
    return found


def run_once(client: httpx.Client, worker: KafkaWorker, folder: Path, topic: str) -> None:
    """A source and a sink that read and write four lines, and are deleted then."""
    out = f"out-{topic}"
    made = {"in": (source(folder / "in", topic), 2), out: (sink(folder, topic), 1)}
    for name, (config, tasks) in made.items():
        assert worker.rest.create(name, config).status == 201
        worker.rest.await_tasks(name, ["RUNNING"] * tasks)
    lines = folder / "out.txt"
    await_true("written", lambda: lines.exists() and lines.read_text().count("\n") >= 4, 60)
    for name in made:
        assert client.put(f"/connectors/{name}/stop").status_code == 204
        await_true(
            "stopped", lambda name=name: not client.get(f"/connectors/{name}/tasks").json(), 20
        )
        delete(client, worker, name)


@pytest.mark.parametrize(
    "internal",
    [
        pytest.param({}, id="http"),
        pytest.param(INTERNAL, id="grpc", marks=pytest.mark.exhaustive),
    ],
)
def test_what_is_left_is_reset_and_a_namesake_begins_from_the_start(
    tmp_path: Path, kafka_broker: Found, kafka_name: str, internal: dict[str, str]
) -> None:
    create_topic(kafka_broker.address, kafka_name)
    inputs = tmp_path / "in"
    inputs.mkdir()
    for n in range(2):
        (inputs / f"{n}.txt").write_text(f"{n}a\n{n}b\n")
    with (
        kafka_worker(tmp_path / "1", kafka_broker.address, kafka_name, **internal) as leader,
        kafka_worker(tmp_path / "2", kafka_broker.address, kafka_name, **internal) as follower,
        httpx.Client(base_url=follower.url, timeout=60) as client,
    ):
        await_true("one leads", lambda: leader.leads and not follower.pending, 60)
        out = f"out-{kafka_name}"  # the group is of the broker, not of these workers
        run_once(client, follower, tmp_path, kafka_name)
        await_true("left by the source", lambda: len(offsets(client, "source", "in")) == 2, 20)
        # The sink's task commits when it stops, which is after the connector was deleted.
        await_true("left by the sink", lambda: len(offsets(client, "sink", out)) == 1, 20)
        assert not offsets(client, "sink", "in") and not offsets(client, "source", out)

        # A namesake goes on from what is left: nothing is read again.
        assert follower.rest.create("in", source(inputs, kafka_name)).status == 201
        follower.rest.await_tasks("in", ["RUNNING", "RUNNING"])
        refused = client.delete("/offsets/source/in")
        assert refused.status_code == 409 and "Connector in exists" in refused.json()["message"]
        assert len(read_committed(kafka_broker.address, kafka_name)) == 4
        delete(client, follower, "in")

        # The tasks may be alive still: it is waited for.
        assert client.delete("/offsets/source/in").status_code == 200
        assert client.delete(f"/offsets/sink/{out}").status_code == 200
        assert client.delete("/offsets/source/in").status_code == 404
        assert not offsets(client, "source", "in") and not offsets(client, "sink", out)
        fenced = [ids for ids in leader.fencer.asked if any("-in-" in each for each in ids)]
        assert fenced and set(fenced[-1]) == {f"{kafka_name}-in-0", f"{kafka_name}-in-1"}

        (tmp_path / "out.txt").unlink()
        run_once(client, follower, tmp_path, kafka_name)
        assert len(read_committed(kafka_broker.address, kafka_name)) == 8, "everything once more"
