"""A Headgate worker and a Java worker give the same answers to the same requests, good and bad.

Where an answer differs on purpose, the table `DIFFERS` gives the reason; ``docs/run/rest.md`` has
the same table for users. Both workers get one story, step by step, so each answer depends on all
requests before.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from support.commands.worker import HeadgateWorker
from support.java.connect import FoundWorker
from support.kafka.broker import Found
from support.kafka.cluster import create_topic

from local_kafka.java_connect import SINK, SOURCE

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Step:
    """A request; with `until`, the same GET again and again until its answer has these texts."""

    line: str
    body: Any = None
    """A str is sent as it is, anything else as JSON."""
    until: tuple[str, ...] = ()
    media_type: str = "application/json"


@dataclass(frozen=True)
class Differs:
    java: int
    ours: int
    why: str


def config(**more: Any) -> dict[str, Any]:
    return {"connector.class": SOURCE, "tasks.max": "1", "file": "FILE", "topic": "TOPIC", **more}


def created(name: object, **more: Any) -> dict[str, Any]:
    return {"name": name, "config": config(), **more}


def sink(file: str = "/dev/null") -> dict[str, Any]:
    """Return a sink config with a group for each worker. In one group they would share the topic's
    partitions."""
    return {
        "connector.class": SINK,
        "tasks.max": "1",
        "file": file,
        "topics": "RECORDS",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "consumer.override.group.id": "GROUP",
    }


def place(offset: Any, topic: Any = "RECORDS", partition: Any = 0) -> dict[str, Any]:
    """A change of a sink's offsets, of one partition."""
    where = {"kafka_topic": topic, "kafka_partition": partition}
    return {"offsets": [{"partition": where, "offset": offset}]}


def at(offset: Any) -> dict[str, Any]:
    return place({"kafka_offset": offset})


UP = ('"connector":{"state":"RUNNING"', '"tasks":[{"id":0,"state":"RUNNING"')
DOWN = ('"connector":{"state":"STOPPED"', '"tasks":[]')
FAILED = ('"tasks":[{"id":0,"state":"FAILED"',)
PARTITION = {"filename": "FILE"}
ALTERED = ("have been altered successfully",)
RESET = ("have been reset successfully",)

STORY: dict[str, Step] = {
    "list of nothing": Step("GET /connectors"),
    "list with a slash": Step("GET /connectors/"),
    "head": Step("HEAD /connectors"),
    "expand nothing": Step("GET /connectors?expand=info&expand=status"),
    "unknown path": Step("GET /nope"),
    "method of root": Step("POST /", {}),
    "method of list": Step("DELETE /connectors"),
    # Of a connector that nobody made.
    "none": Step("GET /connectors/none"),
    "none config": Step("GET /connectors/none/config"),
    "none status": Step("GET /connectors/none/status"),
    "none tasks": Step("GET /connectors/none/tasks"),
    "none task status": Step("GET /connectors/none/tasks/0/status"),
    "none task of letters": Step("GET /connectors/none/tasks/x/status"),
    "none task too large": Step("GET /connectors/none/tasks/99999999999/status"),
    "none topics": Step("GET /connectors/none/topics"),
    "none topics reset": Step("PUT /connectors/none/topics/reset"),
    "none offsets": Step("GET /connectors/none/offsets"),
    "none pause": Step("PUT /connectors/none/pause"),
    "none resume": Step("PUT /connectors/none/resume"),
    "none stop": Step("PUT /connectors/none/stop"),
    "none delete": Step("DELETE /connectors/none"),
    "none restart": Step("POST /connectors/none/restart"),
    "none restart with tasks": Step("POST /connectors/none/restart?includeTasks=true"),
    "none task restart": Step("POST /connectors/none/tasks/0/restart"),
    "none alter": Step(
        "PATCH /connectors/none/offsets", {"offsets": [{"partition": {"a": 1}, "offset": {"b": 1}}]}
    ),
    "none alter nothing": Step("PATCH /connectors/none/offsets", {"offsets": []}),
    "none alter without": Step("PATCH /connectors/none/offsets", {}),
    "none reset": Step("DELETE /connectors/none/offsets"),
    "none patch": Step("PATCH /connectors/none/config", {"a": "b"}),
    # Bad bodies.
    "create by half": Step("POST /connectors", "{"),
    "create a list": Step("POST /connectors", []),
    "create null": Step("POST /connectors", "null"),
    "create without body": Step("POST /connectors"),
    "create without config": Step("POST /connectors", {"name": "a"}),
    "create without class": Step("POST /connectors", {"name": "a", "config": {}}),
    "create with two names": Step("POST /connectors", {"name": "a", "config": {"name": "b"}}),
    "create without name": Step("POST /connectors", {"config": config()}),
    "create with an empty name": Step("POST /connectors", created("")),
    "create invalid": Step("POST /connectors", {"name": "a", "config": config(**{"tasks.max": 0})}),
    "create with more fields": Step("POST /connectors", created("a", bogus=1)),
    "create in a bad state": Step("POST /connectors", created("a", initial_state="bad")),
    "create with an object": Step("POST /connectors", {"name": "a", "config": config(x={})}),
    "create with a null": Step("POST /connectors", {"name": "a", "config": config(x=None)}),
    "create as text": Step("POST /connectors", created("a"), media_type="text/plain"),
    "put without body": Step("PUT /connectors/a/config"),
    "put null": Step("PUT /connectors/a/config", "null"),
    "put nothing": Step("PUT /connectors/a/config", {}),
    # One connector's life.
    "create": Step("POST /connectors", created(" \u0007a ")),
    "running": Step("GET /connectors/a/status", until=UP),
    "create again": Step("POST /connectors", created("a")),
    "info": Step("GET /connectors/a"),
    "config": Step("GET /connectors/a/config"),
    "tasks": Step("GET /connectors/a/tasks"),
    "status": Step("GET /connectors/a/status"),
    "task status": Step("GET /connectors/a/tasks/0/status"),
    "other task status": Step("GET /connectors/a/tasks/7/status"),
    "negative task status": Step("GET /connectors/a/tasks/-1/status"),
    "list": Step("GET /connectors"),
    "expanded": Step("GET /connectors?expand=info&expand=status&expand=bogus"),
    "expanded by nothing known": Step("GET /connectors?expand=bogus"),
    "put with another name": Step("PUT /connectors/a/config", config(name="b")),
    "put": Step("PUT /connectors/a/config", config(**{"batch.size": 7})),
    "put is there": Step("GET /connectors/a/tasks", until=('"batch.size":"7"',)),
    "put settled": Step("GET /connectors/a/status", until=UP),
    "patch": Step("PATCH /connectors/a/config", {"batch.size": None, "x": "y"}),
    "patch is there": Step("GET /connectors/a/tasks", until=('"x":"y"',)),
    "patch settled": Step("GET /connectors/a/status", until=UP),
    "patch invalid": Step("PATCH /connectors/a/config", {"tasks.max": "0"}),
    "alter while running": Step(
        "PATCH /connectors/a/offsets", {"offsets": [{"partition": PARTITION, "offset": None}]}
    ),
    "reset while running": Step("DELETE /connectors/a/offsets"),
    "restart of an unknown task": Step("POST /connectors/a/tasks/9/restart"),
    "restart of a negative task": Step("POST /connectors/a/tasks/-1/restart"),
    "restart of a task of letters": Step("POST /connectors/a/tasks/x/restart"),
    "restart of a task": Step("POST /connectors/a/tasks/0/restart"),
    "task restarted": Step("GET /connectors/a/status", until=UP),
    "restart": Step("POST /connectors/a/restart"),
    "restarted": Step("GET /connectors/a/status", until=UP),
    "restart what failed": Step("POST /connectors/a/restart?onlyFailed=true&includeTasks=true"),
    "restart all": Step("POST /connectors/a/restart?includeTasks=true"),
    "all restarted": Step("GET /connectors/a/status", until=UP),
    "pause by form": Step(
        "PUT /connectors/a/pause", "", media_type="application/x-www-form-urlencoded"
    ),
    "pause": Step("PUT /connectors/a/pause"),
    "paused": Step(
        "GET /connectors/a/status",
        until=('"connector":{"state":"PAUSED"', '"tasks":[{"id":0,"state":"PAUSED"'),
    ),
    "resume": Step("PUT /connectors/a/resume"),
    "resumed": Step("GET /connectors/a/status", until=UP),
    "stop": Step("PUT /connectors/a/stop"),
    "stopped": Step("GET /connectors/a/status", until=DOWN),
    "tasks of a stopped one": Step("GET /connectors/a/tasks"),
    "stop again": Step("PUT /connectors/a/stop"),
    "alter": Step(
        "PATCH /connectors/a/offsets",
        {"offsets": [{"partition": PARTITION, "offset": {"position": 3}}]},
    ),
    "altered": Step("GET /connectors/a/offsets"),
    "alter with more fields": Step(
        "PATCH /connectors/a/offsets", {"offsets": [{"partition": PARTITION, "bogus": 1}]}
    ),
    "alter without partition": Step("PATCH /connectors/a/offsets", {"offsets": [{"offset": {}}]}),
    "alter null": Step("PATCH /connectors/a/offsets", {"offsets": [None]}),
    "alter a text": Step("PATCH /connectors/a/offsets", {"offsets": [{"partition": "x"}]}),
    "alter an object": Step("PATCH /connectors/a/offsets", {"offsets": {}}),
    "alter the body null": Step("PATCH /connectors/a/offsets", "null"),
    "reset": Step("DELETE /connectors/a/offsets"),
    "reset again": Step("DELETE /connectors/a/offsets"),
    "offsets after reset": Step("GET /connectors/a/offsets"),
    "topics reset": Step("PUT /connectors/a/topics/reset"),
    "topics": Step("GET /connectors/a/topics"),
    # A sink, whose offsets are those of a group.
    "k stopped": Step(
        "POST /connectors", {**created("k"), "config": sink(), "initial_state": "STOPPED"}
    ),
    "k is stopped": Step("GET /connectors/k/status", until=DOWN),
    "k without offsets": Step("GET /connectors/k/offsets"),
    "k reset of nothing": Step("DELETE /connectors/k/offsets"),
    "k alter": Step("PATCH /connectors/k/offsets", at(2)),
    "k altered": Step("GET /connectors/k/offsets"),
    "k alter texts": Step(
        "PATCH /connectors/k/offsets", place({"kafka_offset": "3"}, partition="0")
    ),
    "k altered by texts": Step("GET /connectors/k/offsets"),
    "k alter beyond the end": Step("PATCH /connectors/k/offsets", at(99)),
    "k altered beyond the end": Step("GET /connectors/k/offsets"),
    "k alter below 0": Step("PATCH /connectors/k/offsets", at(-1)),
    "k alter to letters": Step("PATCH /connectors/k/offsets", at("x")),
    "k alter to a fraction": Step("PATCH /connectors/k/offsets", at(1.5)),
    "k alter to a null": Step("PATCH /connectors/k/offsets", at(None)),
    "k alter to an object": Step("PATCH /connectors/k/offsets", at({})),
    "k alter to nothing": Step("PATCH /connectors/k/offsets", place({})),
    "k alter to a source's": Step("PATCH /connectors/k/offsets", place({"position": 3})),
    "k alter no topic": Step("PATCH /connectors/k/offsets", place({"kafka_offset": 1}, None)),
    "k alter a topic that is not there": Step(
        "PATCH /connectors/k/offsets", place({"kafka_offset": 1}, "none")
    ),
    "k alter a partition of letters": Step(
        "PATCH /connectors/k/offsets", place({"kafka_offset": 1}, partition="x")
    ),
    "k alter a partition below 0": Step(
        "PATCH /connectors/k/offsets", place({"kafka_offset": 1}, partition=-1)
    ),
    "k alter a partition that is not there": Step(
        "PATCH /connectors/k/offsets", place({"kafka_offset": 1}, partition=7)
    ),
    "k alter a source's": Step(
        "PATCH /connectors/k/offsets", {"offsets": [{"partition": PARTITION, "offset": None}]}
    ),
    "k alter without partition": Step(
        "PATCH /connectors/k/offsets", {"offsets": [{"offset": {"kafka_offset": 1}}]}
    ),
    "k alter nothing": Step("PATCH /connectors/k/offsets", {"offsets": []}),
    "k alter the body null": Step("PATCH /connectors/k/offsets", "null"),
    "k as it was": Step("GET /connectors/k/offsets"),
    "k alter to the end": Step("PATCH /connectors/k/offsets", at(5)),
    "k resume": Step("PUT /connectors/k/resume"),
    "k running": Step("GET /connectors/k/status", until=UP),
    "k info": Step("GET /connectors/k"),
    "k expanded": Step("GET /connectors?expand=status&expand=info"),
    "k offsets while running": Step("GET /connectors/k/offsets"),
    "k alter while running": Step("PATCH /connectors/k/offsets", at(2)),
    "k alter badly while running": Step("PATCH /connectors/k/offsets", at("x")),
    "k reset while running": Step("DELETE /connectors/k/offsets"),
    "k stop": Step("PUT /connectors/k/stop"),
    "k stopped again": Step("GET /connectors/k/status", until=DOWN),
    "k forget one": Step("PATCH /connectors/k/offsets", place(None), until=ALTERED),
    "k forgotten": Step("GET /connectors/k/offsets"),
    "k alter again": Step("PATCH /connectors/k/offsets", at(4), until=ALTERED),
    "k reset": Step("DELETE /connectors/k/offsets", until=RESET),
    "k reset again": Step("DELETE /connectors/k/offsets"),
    "k after reset": Step("GET /connectors/k/offsets"),
    # A task that fails.
    "f": Step("POST /connectors", {**created("f"), "config": sink("/nowhere/out.txt")}),
    "f failed": Step("GET /connectors/f/status", until=FAILED),
    "f task failed": Step("GET /connectors/f/tasks/0/status"),
    "f expanded": Step("GET /connectors?expand=status"),
    "f restart what failed": Step("POST /connectors/f/restart?onlyFailed=true&includeTasks=true"),
    "f failed again": Step("GET /connectors/f/status", until=FAILED),
    "f restart its task": Step("POST /connectors/f/tasks/0/restart"),
    "f alter while it is not stopped": Step("PATCH /connectors/f/offsets", at(2)),
    "f stop": Step("PUT /connectors/f/stop"),
    "f stopped": Step("GET /connectors/f/status", until=DOWN),
    "f task of a stopped one": Step("GET /connectors/f/tasks/0/status"),
    # Odd names, initial states.
    "create stopped": Step("POST /connectors", created("s", initial_state="stopped")),
    "s is stopped": Step("GET /connectors/s/status", until=DOWN),
    "s info": Step("GET /connectors/s"),
    "create paused by put": Step("PUT /connectors/p%20q-1%C3%A9/config", config()),
    "p is": Step("GET /connectors/p%20q-1%C3%A9/status", until=UP),
    "p info": Step("GET /connectors/p%20q-1%C3%A9"),
    "a slash": Step("GET /connectors/b%2Fc"),
    "a plus": Step("GET /connectors/b+c"),
    "bad percent": Step("GET /connectors/%ff"),
    # Loggers and plugins.
    "plugins for connectors": Step("GET /connector-plugins/nope/config"),
    "validate nothing": Step("PUT /connector-plugins/FileStreamSource/config/validate", {}),
    "validate without body": Step("PUT /connector-plugins/FileStreamSource/config/validate"),
    "validate another": Step("PUT /connector-plugins/FileStreamSink/config/validate", config()),
    "logger unknown": Step("GET /admin/loggers/nope.x"),
    "logger without level": Step("PUT /admin/loggers/org.x", {}),
    "logger bad level": Step("PUT /admin/loggers/org.x", {"level": "bogus"}),
    "logger": Step("PUT /admin/loggers/org.x", {"level": "debug"}),
    "logger of all": Step("PUT /admin/loggers/org.x?scope=cluster", {"level": "info"}),
    "logger of all bad": Step("PUT /admin/loggers/org.x?scope=cluster", {"level": "bogus"}),
    "logger without body": Step("PUT /admin/loggers/org.x"),
    # The end.
    "delete": Step("DELETE /connectors/a"),
    "delete again": Step("DELETE /connectors/a"),
    "delete s": Step("DELETE /connectors/s"),
    "delete k": Step("DELETE /connectors/k"),
    "delete f": Step("DELETE /connectors/f"),
    "delete p": Step("DELETE /connectors/p%20q-1%C3%A9"),
    "gone": Step("GET /connectors/a"),
}

BODY = "Java answers 500 to a body that it cannot use. Headgate says what it expected"
BELOW = "A negative partition or offset of a sink is refused as a bad request"
BROKERS = "Java does not say which partition is not there. Headgate does, and refuses the request"
DIFFERS: dict[str, Differs] = {
    "create by half": Differs(500, 400, BODY),
    "create a list": Differs(500, 400, BODY),
    "create null": Differs(500, 400, BODY),
    "create without body": Differs(500, 400, BODY),
    "create without config": Differs(500, 400, BODY),
    "create with more fields": Differs(500, 400, BODY),
    "create in a bad state": Differs(500, 400, BODY),
    "create with an object": Differs(500, 400, BODY),
    "create with a null": Differs(
        400, 400, "Java does not say which key has no value. Headgate names the key"
    ),
    "put without body": Differs(500, 400, BODY),
    "put null": Differs(500, 400, BODY),
    "alter with more fields": Differs(500, 400, BODY),
    "alter null": Differs(500, 400, BODY),
    "alter a text": Differs(500, 400, BODY),
    "alter an object": Differs(500, 400, BODY),
    "alter the body null": Differs(500, 400, BODY),
    "k alter below 0": Differs(500, 400, BELOW),
    "k alter a partition below 0": Differs(500, 400, BELOW),
    "k alter a topic that is not there": Differs(500, 400, BROKERS),
    "k alter a partition that is not there": Differs(500, 400, BROKERS),
    "k alter the body null": Differs(500, 400, BODY),
    "validate nothing": Differs(500, 400, BODY),
    "validate without body": Differs(500, 400, BODY),
    "logger without body": Differs(500, 400, BODY),
    "a slash": Differs(
        400, 404, "Java has no path for a name with a slash. Headgate takes %2F for it"
    ),
    "bad percent": Differs(400, 400, "Java answers with an HTML page. Headgate answers in JSON"),
}


class Teller:
    """One of the two workers, with what makes its answers comparable."""

    def __init__(self, url: str, names: Mapping[str, str]) -> None:
        # A connection for each request: Java answers what it has no method for before it has read
        # the body, and then closes the connection without saying so, if the body came later.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(base_url=url, timeout=100, trust_env=False, limits=limits)
        self._names = names

    def ask(self, step: Step) -> tuple[int, Any, str | None]:
        until = time.monotonic() + 60
        while True:
            answer = self._ask(step)
            if all(text in answer.text for text in step.until):
                return answer.status_code, self._body(answer), self._location(answer)
            assert time.monotonic() < until, (step, answer.text)
            time.sleep(0.05)

    def _ask(self, step: Step) -> httpx.Response:
        method, path = step.line.split(" ", 1)
        content = None
        if step.body is not None:
            content = step.body if isinstance(step.body, str) else json.dumps(step.body)
            for name, value in self._names.items():
                content = content.replace(f'"{name}"', json.dumps(value))
        headers = {} if content is None else {"Content-Type": step.media_type}
        # Java may be in a rebalance, which it tells by 409 or 500; that is not what is compared.
        for _ in range(200):
            answer = self._client.request(method, path, content=content, headers=headers)
            if not any(text in answer.text for text in ("stale configuration", "is expected")):
                break
            time.sleep(0.05)
        return answer

    def _body(self, answer: httpx.Response) -> Any:
        if not answer.content or answer.headers.get("content-type", "").startswith("text/html"):
            return None
        text = answer.text
        for name, value in self._names.items():
            text = text.replace(json.dumps(value), f'"{name}"')
        return normal(json.loads(text))

    def _location(self, answer: httpx.Response) -> str | None:
        found = answer.headers.get("location")
        return None if found is None else httpx.URL(found).raw_path.decode()

    def close(self) -> None:
        self._client.close()


def normal(body: Any) -> Any:
    """Return an answer without the parts in which two workers must differ: names, versions, times,
    classes, and the form of traces."""
    if isinstance(body, dict):
        fixed = {"worker_id": "W", "version": "V", "last_modified": 0, "task.class": "T"}
        fixed["trace"] = "E"
        return {
            key: fixed.get(key, normal(value))
            for key, value in body.items()
            if not key.startswith("headgate.")
        }
    if isinstance(body, list):
        return [normal(each) for each in body]
    return body


def test_the_same_story_has_the_same_answers(
    kafka_broker: Found,
    kafka_name: str,
    java_connect: FoundWorker,
    headgate_worker: Callable[..., HeadgateWorker],
    tmp_path: Path,
) -> None:
    file = tmp_path / "in.txt"
    file.write_text("")
    settings = {"scheduled.rebalance.max.delay.ms": "0"}
    own = headgate_worker(kafka_broker.address, kafka_name, settings)
    records = f"{kafka_name}-records"
    create_topic(kafka_broker.address, records)
    producer = Producer({"bootstrap.servers": kafka_broker.address, "log_level": 0})
    for number in range(5):
        producer.produce(records, str(number).encode())
    assert producer.flush(30) == 0
    names = {"FILE": str(file), "TOPIC": f"{kafka_name}-data", "RECORDS": records}
    java, ours = (
        Teller(url, {**names, "GROUP": f"{kafka_name}-{kind}"})
        for url, kind in ((java_connect.url, "java"), (own.url, "ours"))
    )
    wrong: list[str] = []
    for name, step in STORY.items():
        expected, found = java.ask(step), ours.ask(step)
        differs = DIFFERS.get(name)
        if differs is None:
            if found != expected:
                wrong.append(f"{name}: {step.line}\n  Java: {expected}\n  ours: {found}")
        elif (expected[0], found[0]) != (differs.java, differs.ours):
            wrong.append(f"{name}: {expected[0]} and {found[0]}, the table says {differs}")
    java.close()
    ours.close()
    assert not wrong, "\n".join(wrong)


def test_the_differences_are_of_steps_and_told_to_users() -> None:
    assert set(DIFFERS) <= set(STORY)
    page = (Path(__file__).parents[2] / "docs/run/rest.md").read_text()
    assert [differs.why for differs in DIFFERS.values() if differs.why not in page] == []
