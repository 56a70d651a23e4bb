"""Commands change several connectors, given by names or regular expressions, and report each
outcome."""

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
import typer
from support.grpc.worker import Served, grpc_worker
from typer.testing import CliRunner, Result

from headgate.ids import TargetState
from headgate_grpc.v1 import connector_pb2
from headgate_runtime.command.parser import app
from headgate_runtime.remote import selecting
from headgate_runtime.remote.over_rest import RestRemote
from headgate_runtime.remote.remote import ConnectorRow, RefusedError, RemoteError

SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
NAMES = ("orders-in", "orders-out", "payments")


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with grpc_worker(tmp_path_factory.mktemp("several")) as served:
        yield served


@pytest.fixture
def served(worker: Served) -> Iterator[Served]:
    """A worker with three connectors that are stopped."""
    for name in NAMES:
        worker.client.create(name, SINK, connector_pb2.TARGET_STATE_STOPPED)
        worker.client.wait(name)
    yield worker
    for name in names(worker):
        worker.client.delete(name)
        worker.client.wait(name, deleted=True)


def names(worker: Served) -> list[str]:
    return [each.name for each in worker.client.list()]


def connectors(served: Served, *arguments: str, given: str | None = None) -> Result:
    return RUN.invoke(app, ["connectors", *arguments, "--url", served.rest.url], input=given)


RUN = CliRunner()


@pytest.mark.parametrize(
    ("command", "word"),
    [("pause", "paused"), ("resume", "resumed"), ("stop", "stopped"), ("restart", "restarted")],
)
def test_all_that_match_are_changed(served: Served, command: str, word: str) -> None:
    done = connectors(served, command, "--reg-exp", "orders-.*", "pay.+", "nobody")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{name} {word}" for name in NAMES]


def test_a_pattern_is_about_whole_names(served: Served) -> None:
    done = connectors(served, "pause", "-e", "orders")
    assert done.exit_code == 1 and not done.stdout
    assert "no connector matches orders\n  next: headgate connectors list" in done.stderr
    assert "'.*orders.*'" in done.stderr
    done = connectors(served, "pause", "-e", "*")
    assert done.exit_code == 2 and not done.stdout
    assert "'*' is no regular expression: nothing to repeat" in done.stderr
    assert connectors(served, "pause", "orders-.*").exit_code == 1  # a name, without -e


def test_a_name_that_is_not_there_does_not_stop_the_others(served: Served) -> None:
    done = connectors(served, "pause", "orders-in", "nope", "payments", "orders-in")
    assert done.exit_code == 1
    assert done.stdout == "orders-in paused\npayments paused\n"
    assert "Unknown connector nope" in done.stderr and "payments" not in done.stderr


@pytest.mark.parametrize("way", ["grpc", "rest"])
@pytest.mark.parametrize("command", ["connectors show", "connectors wait", "offsets show"])
def test_what_is_found_is_shown_though_another_is_refused(
    served: Served, command: str, way: str
) -> None:
    address = served.address if way == "grpc" else served.rest.url
    asked = [*command.split(), "--url", address]
    done = RUN.invoke(app, [*asked, "orders-in", "nope", "payments"])
    assert done.exit_code == 1
    shown = [name for name in NAMES if name in done.stdout]
    assert shown == ["orders-in", "payments"]
    assert done.stderr.startswith("headgate: ") and "onnector nope" in done.stderr
    assert done.stderr.count("nope") - done.stderr.count("show nope") == 1
    if command.endswith("show"):
        found = json.loads(RUN.invoke(app, [*asked, "nope", "payments", "-o", "json"]).stdout)
        assert len(found) == 1
        assert json.loads(RUN.invoke(app, [*asked, "no", "nope", "-o", "json"]).stdout) in ([], {})
    done = RUN.invoke(app, [*asked, "no", "nope"])
    assert (done.exit_code, done.stdout, done.stderr.count("headgate: ")) == (1, "", 2)


@pytest.mark.parametrize("way", ["grpc", "rest"])
def test_one_that_is_late_does_not_stop_the_others(served: Served, way: str) -> None:
    address = served.address if way == "grpc" else served.rest.url
    wait = ["connectors", "wait", "--url", address, "--timeout", "0.3"]
    served.client.resume("orders-in")
    served.client.wait("orders-in")
    done = RUN.invoke(app, [*wait, "--for", "STOPPED", "orders-in", "payments"])
    assert (done.exit_code, done.stdout) == (3, "payments: STOPPED\n"), done.output
    assert "orders-in is not STOPPED" in done.stderr
    done = RUN.invoke(app, [*wait, "--for", "STOPPED", "nope", "orders-in"])
    assert (done.exit_code, done.stdout) == (1, "")


def test_offsets_of_several_are_reset_though_one_is_not_there(served: Served) -> None:
    done = RUN.invoke(
        app, ["offsets", "reset", "paymnets", "payments", "--url", served.address, "--dry-run"]
    )
    assert done.exit_code == 1 and done.stdout.startswith("payments:\n"), done.output
    assert done.stderr.count("did you mean payments?") == 1 and "if it was deleted" in done.stderr


@pytest.mark.parametrize("way", ["grpc", "rest"])
@pytest.mark.parametrize(
    "command", ["connectors show", "connectors wait", "connectors pause", "offsets show"]
)
def test_a_mistyped_name_is_answered_with_the_nearest(
    served: Served, command: str, way: str
) -> None:
    address = served.address if way == "grpc" else served.rest.url
    done = RUN.invoke(app, [*command.split(), "paymnets", "--url", address])
    assert done.exit_code == 1
    assert "; did you mean payments?\n  next: headgate connectors list" in done.stderr
    done = RUN.invoke(app, [*command.split(), "zzzzzz", "--url", address])
    assert done.exit_code == 1 and "did you mean" not in done.stderr


def test_what_would_be_deleted_is_shown_and_asked(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = connectors(served, "delete", "-e", "orders-.*")
    assert done.exit_code == 2 and names(served) == list(NAMES)
    assert "orders-in " in done.stderr and "orders-out " in done.stderr
    assert "payments" not in done.stderr and "say --yes" in done.stderr
    monkeypatch.setattr(selecting, "on_terminal", lambda: True)
    done = connectors(served, "delete", "-e", "orders-.*", given="n\n")
    assert done.exit_code == 1 and names(served) == list(NAMES)
    assert f"delete 2 connectors at {served.rest.url.rstrip('/')}? [y/N]" in done.stderr
    done = connectors(served, "delete", "-e", "orders-.*", given="y\n")
    assert done.exit_code == 0  # the runner of the test shows what was typed, too
    assert done.stdout.endswith("orders-in deleted\norders-out deleted\n")
    assert names(served) == ["payments"]


def test_yes_asks_nothing_and_plain_names_are_not_asked_about(served: Served) -> None:
    done = connectors(served, "delete", "-e", "orders-.*", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert connectors(served, "delete", "payments").stdout == "payments deleted\n"
    assert names(served) == []


def test_a_dry_run_shows_what_would_be_deleted_and_asks_nothing(served: Served) -> None:
    done = connectors(served, "delete", "-e", "orders-.*", "--dry-run")
    assert (done.exit_code, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert [each.partition(":")[0] for each in told] == ["orders-in", "orders-out"]
    assert all(each.endswith("; would be deleted (dry run)") for each in told)
    done = connectors(served, "delete", "payments", "paymnets", "--dry-run")
    assert done.exit_code == 1 and done.stdout.startswith("payments: ")
    assert "did you mean payments?" in done.stderr
    assert names(served) == list(NAMES)


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("nothing", "a", "a: nothing"),
        ("there is a fault", "a", "a: there is a fault"),
        ("Unknown connector a-2", "a", "a: Unknown connector a-2"),
        ("Unknown connector a.b", "a", "a: Unknown connector a.b"),
        ("Unknown connector: a", "a", "Unknown connector: a"),
        ("Unknown task: a-0", "a-0", "Unknown task: a-0"),
        ("Connector a already exists", "a", "Connector a already exists"),
        ("a has failed", "a", "a has failed"),
        ("wrong\n  next: headgate connectors stop a", "a", "a: wrong\n  next: headgate con"),
    ],
)
def test_a_refusal_names_its_connector_once(
    capsys: pytest.CaptureFixture[str], text: str, name: str, said: str
) -> None:
    def change(_: Any, asked: str) -> str:
        raise RefusedError(text if asked == name else "x")

    with pytest.raises(typer.Exit):
        selecting.all_of(cast(Any, None), [name, "other"], change)
    told = capsys.readouterr().err
    assert told.startswith(f"headgate: {said}") and told.endswith("\nheadgate: other: x\n")


class Lost(RestRemote):
    """A worker whose connection breaks when the second connector is asked for."""

    def row(self, name: str) -> ConnectorRow:
        if name == NAMES[1]:
            raise RemoteError("http://w has not answered: gone\n  next: look", 1)
        return super().row(name)

    def set_target_state(self, name: str, state: TargetState) -> None:
        if name == NAMES[1]:
            raise RemoteError("http://w has not answered: gone\n  next: look", 1)
        super().set_target_state(name, state)


def test_where_the_connection_breaks_those_that_were_not_asked_are_named(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(url: str | None) -> Any:
        return Lost(str(url))

    monkeypatch.setattr("headgate_runtime.remote.options.open_remote", lost)
    done = connectors(served, "pause", *NAMES)
    assert done.exit_code == 1
    assert done.stdout == "orders-in paused\n"
    assert "orders-out: http://w has not answered" in done.stderr
    assert done.stderr.endswith("  not asked: payments\n")
    done = connectors(served, "show", *NAMES)
    assert done.exit_code == 1 and done.stdout.startswith("name    orders-in\n")
    assert "orders-out: http://w has not answered" in done.stderr
    assert done.stderr.endswith("  not asked: payments\n")
