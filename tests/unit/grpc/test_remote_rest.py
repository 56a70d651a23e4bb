"""The commands see and do the same over gRPC and over REST, which a Java worker has, too."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.grpc.worker import Served, grpc_worker
from typer.testing import CliRunner, Result

from headgate.herder.messages import DeleteConnector
from headgate.ids import TargetState
from headgate.ports import IncomingCall
from headgate_grpc.v1 import cluster_service_pb2
from headgate_rest import RestService
from headgate_rest.client_calls import Question
from headgate_rest.http import HttpResponse
from headgate_runtime.command.parser import app
from headgate_runtime.remote.over_grpc import GrpcRemote
from headgate_runtime.remote.over_rest import RestRemote
from headgate_runtime.remote.remote import LateError, Remote, RemoteError

SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
REMOTES = ("grpc", "rest")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with grpc_worker(tmp_path_factory.mktemp("remote")) as served:
        yield served


@pytest.fixture(params=REMOTES)
def remote(served: Served, request: pytest.FixtureRequest) -> Iterator[Remote]:
    over_grpc = request.param == "grpc"
    made = GrpcRemote(served.address) if over_grpc else RestRemote(served.rest.url)
    yield made
    made.close()


def test_a_connector_is_operated_the_same_way(remote: Remote, tmp_path: Path) -> None:
    source = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": "t",
    }
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    name = f"a / {tmp_path.name}"  # offsets outlive a connector
    remote.create(name, source, TargetState.STOPPED)
    row = remote.wait(name, "STOPPED", 20)
    assert row is not None and row.name == name and row.config == {**source, "name": name}
    change = ({"filename": source["file"]}, {"position": 2**53 + 1})
    assert remote.alter_offsets(name, [change])
    assert remote.offsets(name) == [{"partition": change[0], "offset": change[1]}]
    assert remote.reset_offsets(name)
    remote.set_target_state(name, TargetState.STARTED)
    row = remote.wait(name, "RUNNING", 20)
    assert row is not None and [task.state for task in row.tasks] == ["RUNNING"]
    assert [each.name for each in remote.rows("a")] == [name]
    assert [each.name for each in remote.rows(states=["RUNNING"])] == [name]
    remote.restart(name, include_tasks=False, only_failed=False)
    remote.restart_task(name, 0)
    assert not remote.put_config(name, source)
    seen_name, seen = next(iter(remote.watch("", [name])))
    assert seen_name == name and seen is not None
    assert len(remote.row(name).task_configs) == 1
    with pytest.raises(LateError, match=r"\n  next: headgate connectors show a / "):
        remote.wait(name, "STOPPED", 1)
    remote.delete(name)
    assert remote.wait(name, "deleted", 20) is None


@pytest.mark.parametrize(
    ("ask", "code", "next_step"),
    [
        (lambda r: r.row("nope"), "not found", "headgate connectors list shows what is there"),
        (lambda r: r.create("x", {}, None), "", "nothing was changed; mend it and ask again"),
        (lambda r: r.reset_offsets("taken"), "", "stop it first: headgate connectors stop taken"),
        (lambda r: r.create("taken", SINK, None), "already exists", "headgate connectors apply"),
        (
            lambda r: r.restart_task("taken", 77),
            "Unknown task",
            "headgate connectors show taken lists",
        ),
        (
            lambda r: r.set_level("some.logger", "loud", cluster=False),
            "invalid",
            "levels are OFF, FATAL",
        ),
    ],
)
def test_every_refusal_ends_with_what_to_do_next(
    remote: Remote, served: Served, ask: object, code: str, next_step: str
) -> None:
    served.client.put_config("taken", SINK)
    with pytest.raises(RemoteError) as caught:
        ask(remote)  # type: ignore[operator]
    text, _, hint = str(caught.value).rpartition("\n  next: ")
    assert code in text and next_step in hint


class TooEarly(RestRemote):
    """A worker that has no status of "young" yet, and does not know "gone", which it has named."""

    def _answer(self, asked: Question) -> HttpResponse:
        found = super()._answer(asked)
        if asked.path.startswith(("/connectors/young/status", "/connectors/gone")):
            body = b'{"error_code": 404, "message": "not found"}'
            return HttpResponse(404, body, found.headers)
        if asked.path.partition("?")[0] != "/connectors":
            return found
        names = json.loads(found.body)
        if "expand" in asked.path:
            names.pop("young", None)
        elif not self.named:
            self.named = True
            names.append("gone")
        return HttpResponse(found.status, json.dumps(names).encode(), found.headers)

    named = False


def test_a_connector_without_a_status_is_known_by_rest(served: Served, tmp_path: Path) -> None:
    served.client.put_config("young", SINK)
    remote = TooEarly(served.rest.url)
    rows = {row.name: row for row in remote.rows("young")}
    assert rows["young"].config == {**SINK, "name": "young"}
    assert rows["young"].state == ""
    assert [row.name for row in remote.rows(states=["RUNNING"]) if row.name == "young"] == []
    assert [row.action for row in remote.plan({"young": {**SINK, "n": "1"}}, None).rows] == [
        "change config"
    ]
    remote.close()
    served.client.delete("young")


def test_loggers_and_the_cluster_are_told(remote: Remote) -> None:
    assert remote.set_level("some.logger", "debug", cluster=False) == ["some.logger"]
    assert remote.loggers()["some.logger"] == "DEBUG"
    assert remote.cluster()["kafka_cluster_id"] == "embedded"


def patch(remote: Remote, *words: str) -> Result:
    return CliRunner().invoke(app, ["connectors", "patch", *words, "--url", remote.where])


def test_a_patch_changes_the_keys_that_it_names(remote: Remote, served: Served) -> None:
    served.client.put_config("patched", {**SINK, "old": "1", "both": "1", "stays": "1"})
    done = patch(remote, "patched", "both=a=b ", "new=", "--remove", "old", "--remove", "stay")
    said = "patched changed\n  it had no stay; did you mean stays?\n"
    assert (done.exit_code, done.output) == (0, said)
    wanted = {**SINK, "name": "patched", "both": "a=b ", "new": "", "stays": "1"}
    assert remote.row("patched").config == wanted


def test_a_patch_can_be_looked_at_first(remote: Remote, served: Served) -> None:
    served.client.put_config("looked", {**SINK, "old": "1", "api.password": "hush"})
    before = served.client.get("looked").etag
    words = ("looked", "batch=2", "api.password=other", "--remove", "old", "--dry-run")
    done = patch(remote, *words)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "looked would change"
    assert "  + batch = 2" in lines and "  - old = 1" in lines
    assert "  + api.password = [hidden]" in lines and "hush" not in done.output
    same = patch(remote, "looked", "old=1", "--dry-run")
    assert (same.exit_code, same.output) == (0, "looked would not change\n")
    fault = patch(remote, "looked", "tasks.max=none", "--dry-run")
    assert fault.exit_code == 1 and "  fault: tasks.max: Invalid value none" in fault.output
    assert served.client.get("looked").etag == before


def test_a_patch_loses_no_change_that_is_made_meanwhile(remote: Remote, served: Served) -> None:
    served.client.put_config("shared", SINK)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda n: remote.patch_config("shared", {f"k{n}": "1"}), range(12)))
    assert len(done) == 12
    assert {f"k{n}" for n in range(12)} <= set(remote.row("shared").config)


def test_a_patch_that_is_refused_changes_nothing(remote: Remote, served: Served) -> None:
    served.client.put_config("refused", SINK)
    done = patch(remote, "refused", "tasks.max=none", "other=1")
    assert done.exit_code == 1 and "\n  next: nothing was changed; mend it" in done.stderr
    assert remote.row("refused").config == {**SINK, "name": "refused"}
    done = patch(remote, "nobody", "a=1")
    assert done.exit_code == 1 and "nobody not found\n  next: " in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no key is given\n  next: headgate connectors patch c KEY=VALUE"),
        (("a",), "a: expected KEY=VALUE\n  next: --remove KEY removes a key"),
        (("=1",), "=1: expected KEY=VALUE"),
        (("a=1", "a=2"), "a is given twice"),
        (("a=1", "--remove", "a"), "a is given twice"),
        (("name=d",), "c keeps its name"),
        (("--remove", "name"), "c keeps its name"),
    ],
)
def test_a_patch_that_makes_no_sense_asks_nobody(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, ["connectors", "patch", "c", *words, "--url", "http://x:1"])
    assert (done.exit_code, said in done.stderr) == (2, True), done.output
    assert "\n  next: " in done.stderr


@pytest.mark.parametrize("named", [["whole", "0"], ["whole-0"]])
def test_a_task_is_restarted_by_its_number_or_its_whole_name(
    served: Served, named: list[str]
) -> None:
    served.client.put_config("whole", SINK)
    served.client.wait("whole")
    done = CliRunner().invoke(app, ["tasks", "restart", *named, "--url", served.address])
    assert (done.exit_code, done.stdout) == (0, "whole-0 restarted\n"), done.output


def test_a_call_tells_by_whom_it_was_asked(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    origins: list[str] = []
    incoming = RestService.incoming

    def noted(self: RestService) -> Sequence[IncomingCall]:
        found = incoming(self)
        origins.extend(each.origin for each in found if isinstance(each.call, DeleteConnector))
        return found

    monkeypatch.setattr(RestService, "incoming", noted)
    with pytest.raises(RemoteError):
        remote.delete("nobody")
    how = "gRPC" if isinstance(remote, GrpcRemote) else "REST"
    (origin,) = origins
    assert re.fullmatch(rf"over {how} by 127\.0\.0\.1:\d+", origin)


@pytest.mark.parametrize("over", [GrpcRemote, RestRemote])
def test_a_cluster_that_is_not_there_is_told(over: type) -> None:
    scheme = "grpc" if over is GrpcRemote else "http"
    remote: Remote = over(f"{scheme}://127.0.0.1:1")
    with pytest.raises(RemoteError, match=r"cannot be reached.*\n  next: is this") as caught:
        remote.rows()
    assert caught.value.exit_code == 1
    remote.close()


def test_one_that_is_refused_does_not_keep_the_others_from_being_changed(served: Served) -> None:
    for name in ("first", "last"):
        served.client.put_config(name, SINK)
    names = ["first", "nobody", "last"]
    done = CliRunner().invoke(app, ["connectors", "delete", *names, "--url", served.address])
    assert (done.exit_code, done.stdout) == (1, "first deleted\nlast deleted\n"), done.output
    assert "nobody not found\n  next: " in done.stderr


def test_who_does_not_answer_is_not_asked_once_for_each_name() -> None:
    names = ["a", "b", "c"]
    done = CliRunner().invoke(app, ["connectors", "pause", *names, "--url", "http://127.0.0.1:1"])
    assert (done.exit_code, done.stderr.count("cannot be reached")) == (1, 1), done.output


def test_a_group_is_told_by_its_leader(remote: Remote, served: Served) -> None:
    def settled(worker: Any) -> bool:
        running = sum(row.state == "RUNNING" for row in remote.rows())
        member = worker["leader"] and worker["member"]
        return bool(member) and worker["connector_count"] == running

    # A round may be under way for what the test before has made or deleted.
    deadline = time.monotonic() + 20
    while not settled(worker := remote.cluster()["workers"][0]):
        assert time.monotonic() < deadline, worker
    assert len(remote.cluster()["workers"]) == 1
    assert worker["member"] and worker["url"] == served.rest.url
    assert worker["worker_id"] == served.rest.worker_id
    done = CliRunner().invoke(app, ["status", "--url", remote.where])
    assert f"{served.rest.worker_id} (leader)" in done.stdout, done.output


def commands(remote: Remote, *words: str) -> Result:
    return CliRunner().invoke(app, ["connectors", *words, "--url", remote.where])


def test_what_is_delivered_at_least_once_is_told_before_it_is_written(
    remote: Remote, tmp_path: Path
) -> None:
    """diff, create and apply show the note, but not for a connector that does not change."""
    name = f"noted-{tmp_path.name}"
    file = tmp_path / "sink.json"
    letters = {"errors.deadletterqueue.topic.name": "letters"}
    file.write_text(json.dumps({"name": name, "config": {**SINK, **letters}}))
    group = "connector.class: FileStreamSink writes at least once with this config: its consumer"
    queue = "errors.deadletterqueue.topic.name: dead letters are written to letters at least once"
    found = commands(remote, "diff", str(file))
    assert found.exit_code == 1
    assert f"\n  note: {group}" in found.stdout and f"\n  note: {queue}" in found.stdout
    found = commands(remote, "create", str(file))
    assert found.exit_code == 0, found.output
    assert f"note: {name}: {group}" in found.stderr and f"note: {name}: {queue}" in found.stderr
    found = commands(remote, "apply", str(file))
    assert found.stdout == f"{name} unchanged\n" and found.stderr == ""
    file.write_text(json.dumps({"name": name, "config": {**SINK, "tasks.max": "2"}}))
    found = commands(remote, "apply", str(file))
    assert f"note: {name}: {group}" in found.stderr
    remote.delete(name)


class Recorded(RestRemote):
    """Notes each request. With `java`, the worker does not tell what it is at."""

    java = False
    asked: ClassVar[list[str]] = []

    def _answer(self, asked: Question) -> HttpResponse:
        self.asked.append(f"{asked.method} {asked.path.partition('?')[0]}")
        if self.java and asked.path == "/headgate/worker":
            return HttpResponse(404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', {})
        return super()._answer(asked)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Recorded]]:
    class Recording(Recorded):
        asked: ClassVar[list[str]] = []

    where = "headgate_runtime.remote.options.open_remote"
    monkeypatch.setattr(where, lambda url: Recording(str(url)))
    yield Recording


@pytest.mark.parametrize("java", [False, True])
def test_before_it_is_written_only_the_given_config_is_looked_at(
    served: Served, tmp_path: Path, recorded: type[Recorded], java: bool
) -> None:
    recorded.java = java
    served.client.put_config("other", SINK)
    name = f"looked-{tmp_path.name[-1]}-{java}"
    file = tmp_path / "sink.json"
    validate = [] if java else ["PUT /connector-plugins/FileStreamSink/config/validate"]
    for command, tasks, written in (
        ("create", "1", ["POST /connectors"]),
        ("apply", "1", []),
        ("apply", "2", [f"PUT /connectors/{name}/config"]),
    ):
        file.write_text(json.dumps({"name": name, "config": {**SINK, "tasks.max": tasks}}))
        recorded.asked.clear()
        words = ["connectors", command, str(file), "--url", served.rest.url]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        listed = [each for each in recorded.asked if each.startswith("GET /connectors")]
        assert bool(listed) == (command == "apply")
        looked = ["GET /headgate/worker", *validate] if written else []
        etag = r"/headgate/if-match/\d+"
        others = [re.sub(etag, "", each) for each in recorded.asked if each not in listed]
        assert others == [*looked, *written]
        assert ("note: " in done.stderr) == bool(written and not java)
    served.client.delete(name)
    served.client.delete("other")


def test_over_grpc_too_what_does_not_connect_is_the_commands_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(*_: Any) -> None:
        raise AssertionError("the address is tried again")

    monkeypatch.setattr(GrpcRemote, "create", create)
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({"name": "c", "config": SINK}))
    words = ["connectors", "create", str(file), "--url", "grpc://127.0.0.1:1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1 and "127.0.0.1:1 cannot be reached" in done.stderr, done.output


@pytest.mark.parametrize("command", ["create", "apply"])
def test_an_address_that_cannot_be_reached_is_tried_once(
    tmp_path: Path, recorded: type[Recorded], command: str
) -> None:
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({"name": "c", "config": SINK}))
    words = ["connectors", command, str(file), "--url", "http://127.0.0.1:1"]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stderr.count("cannot be reached")) == (1, 1)
    assert len(recorded.asked) == 1


def test_a_validation_tells_it_in_a_header_beside_connects_answer(served: Served) -> None:
    over_rest = RestRemote(served.rest.url)
    path = "/connector-plugins/FileStreamSink/config/validate"
    answer = over_rest._answer(Question("PUT", path, json.dumps({**SINK, "name": "s"}).encode()))
    headers = {name.lower(): value for name, value in answer.headers.items()}
    assert answer.status == 200
    assert headers["warning"].startswith('299 - "connector.class: FileStreamSink writes at least')
    infos = json.loads(answer.body)
    assert set(infos) == {"name", "error_count", "groups", "configs"}
    assert infos["error_count"] == 0
    asked = cluster_service_pb2.ValidateConfigRequest(config={**SINK, "name": "s"})
    told = served.client.cluster.ValidateConfig(asked)
    assert [note.key for note in told.notes] == ["connector.class"]
