"""The commands, the client and the example of docs/run/grpc.md run on a real `headgate up`."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.pipelines import HEADGATE, Up

from headgate_grpc.client import Client, HeadgateError
from headgate_grpc.v1 import connector_pb2

pytestmark = pytest.mark.slow

PIPELINE = """
[cluster]
workers = 2
data = "state"
runner = "process"
"session.timeout.ms" = 4000
"heartbeat.interval.ms" = 500
"scheduled.rebalance.max.delay.ms" = 500

[connectors.lines]
"connector.class" = "FileStreamSource"
topic = "lines"
file = "in.txt"
"""
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/grpc/keep_running.py"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("up")
    (folder / "in.txt").write_text("one\ntwo\n")
    (folder / "pipeline.toml").write_text(PIPELINE)
    up = Up(folder).start()
    try:
        up.wait_for("a socket", lambda: (folder / "state/grpc.sock").is_socket(), 30)
        done = run(up, "connectors", "wait", "lines", "--timeout", "30")
        # Until the pipeline is applied there is no connector to wait for.
        up.wait_for("lines", lambda: run(up, "connectors", "wait", "lines").returncode == 0, 40)
        assert done.returncode in (0, 1), done.stderr
        yield up
        assert up.end() == 0
        assert not (folder / "state/grpc.sock").exists()
    finally:
        up.clean_up()


def run(up: Up, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in the folder of the pipeline, without settings."""
    environment = {key: value for key, value in os.environ.items() if key != "HEADGATE_URL"}
    return subprocess.run(
        [str(HEADGATE), *arguments],
        cwd=up.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def ok(up: Up, *arguments: str) -> str:
    done = run(up, *arguments)
    other = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert (done.returncode, other) == (0, []), done
    return done.stdout


def test_the_socket_is_its_users_alone(up: Up) -> None:
    assert stat.S_IMODE((up.folder / "state/grpc.sock").stat().st_mode) == 0o600


def test_no_worker_and_no_task_has_grpc_in_it(up: Up) -> None:
    """Tasks are forked from a zygote: gRPC's threads would not come along."""
    looked = 0
    for process in up.look():
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "cygrpc" not in maps, process
        looked += bool(maps)
    assert looked >= 4  # two workers, a zygote, a task


def test_a_connector_is_operated_from_the_folder(up: Up) -> None:
    shown = ok(up, "status")
    assert "worker-1" in shown and "worker-2" in shown and "lines" in shown
    assert ok(up, "connectors", "pause", "lines") == "lines paused\n"
    assert ok(up, "connectors", "wait", "lines", "--for", "paused") == "lines: PAUSED\n"
    assert ok(up, "connectors", "stop", "lines") == "lines stopped\n"
    assert ok(up, "connectors", "wait", "lines") == "lines: STOPPED\n"
    offsets = json.loads(ok(up, "offsets", "show", "lines", "-o", "json"))
    assert offsets == {
        "offsets": [{"partition": {"filename": "in.txt"}, "offset": {"position": 8}}]
    }
    offsets["offsets"][0]["offset"]["position"] = 4
    (up.folder / "offsets.json").write_text(json.dumps(offsets))
    assert "altered successfully" in ok(up, "offsets", "set", "lines", "offsets.json")
    assert ok(up, "connectors", "resume", "lines") == "lines resumed\n"
    ok(up, "connectors", "wait", "lines")
    up.wait_for("the line that was read again", lambda: up.records("lines") == 3, 20)
    assert ok(up, "tasks", "restart", "lines", "0") == "lines-0 restarted\n"
    assert ok(up, "connectors", "restart", "lines", "--tasks") == "lines restarted\n"
    ok(up, "loggers", "set", "headgate_runtime", "INFO")


def test_a_wait_sees_what_came_of_the_last_change(up: Up) -> None:
    """The wait does not see the run before, whose statuses say RUNNING or FAILED until the next run
    reports."""
    good = {
        "connector.class": "FileStreamSink",
        "topics": "lines",
        "file": str(up.folder / "copy.txt"),
        "headgate.restart.max": "0",
    }
    missing = up.folder / "missing"
    bad = {**good, "file": str(missing / "copy.txt")}
    with Client(f"unix:{up.folder}/state/grpc.sock") as client:
        for number in range(3):
            client.put_config("copy", {**good, "number": str(number)})
            assert client.wait("copy").settled
            client.put_config("copy", bad)
            with pytest.raises(HeadgateError, match="copy-0 has failed"):
                client.wait("copy")
        missing.mkdir()
        client.restart("copy", include_tasks=True, only_failed=True)
        assert client.wait("copy").settled
        for _ in range(3):
            client.restart("copy", include_tasks=True)
            assert client.wait("copy").tasks[0].status.state == connector_pb2.STATE_RUNNING
            client.restart_task("copy", 0)
            assert client.wait("copy", state=connector_pb2.STATE_RUNNING).settled
        client.stop("copy")
        client.wait("copy")
        client.resume("copy")
        assert len(client.wait("copy").tasks) == 1
    (up.folder / "bad.json").write_text(
        json.dumps({"name": "copy", "config": {**bad, "file": str(missing / "no" / "copy.txt")}})
    )
    ok(up, "connectors", "apply", "bad.json")
    waited = run(up, "connectors", "wait", "copy")
    assert waited.returncode == 1 and "copy-0 has failed" in waited.stderr, waited
    ok(up, "connectors", "delete", "copy")


@pytest.mark.exhaustive
def test_connectors_are_applied_from_files(up: Up) -> None:
    config = {
        "name": "more",
        "connector.class": "FileStreamSource",
        "file": "in.txt",
        "topic": "more",
        "some.password": "hush",
    }
    (up.folder / "more.json").write_text(json.dumps(config))
    differs = run(up, "connectors", "diff", "more.json")
    assert differs.returncode == 1 and "more would be created" in differs.stdout
    assert "hush" not in differs.stdout and "some.password = [hidden]" in differs.stdout
    assert ok(up, "connectors", "apply", "more.json") == "more created\n"
    assert ok(up, "connectors", "apply", "more.json") == "more unchanged\n"
    assert ok(up, "connectors", "diff", "more.json") == "more unchanged\n"
    (up.folder / "more.json").write_text(json.dumps({**config, "batch.size": "5"}))
    assert "+ batch.size = 5" in run(up, "connectors", "diff", "more.json").stdout
    assert ok(up, "connectors", "apply", "more.json") == "more changed\n"
    refused = run(up, "connectors", "create", "more.json")
    assert refused.returncode == 1 and "next: headgate connectors apply" in refused.stderr
    assert "hush" not in ok(up, "connectors", "show", "more")
    rows = json.loads(ok(up, "connectors", "list", "-o", "json", "--prefix", "mo"))
    assert [row["name"] for row in rows] == ["more"]
    assert ok(up, "connectors", "delete", "more") == "more deleted\n"
    assert ok(up, "connectors", "wait", "more", "--for", "deleted") == "more: deleted\n"


def test_exit_codes_say_what_kind_of_failure_it_was(up: Up, tmp_path: Path) -> None:
    late = run(up, "connectors", "wait", "lines", "--for", "stopped", "--timeout", "0.5")
    assert late.returncode == 3 and "is not STOPPED yet" in late.stderr
    assert run(up, "connectors", "show", "nope").returncode == 1
    assert run(up, "connectors", "wait", "lines", "--for", "nonsense").returncode == 2
    elsewhere = subprocess.run(
        [str(HEADGATE), "status"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert elsewhere.returncode == 2 and "no headgate up runs in" in elsewhere.stderr


def test_the_example_keeps_a_connector_running(up: Up) -> None:
    """The file it reads is not there at first; the connector is deleted at the end."""
    with subprocess.Popen(
        [sys.executable, str(EXAMPLE), "in.txt", "orders"],
        cwd=up.folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as example:
        try:
            assert example.stdout is not None
            assert example.stdout.readline() == "orders runs\n"
            ok(up, "connectors", "delete", "orders")
            assert example.stdout.readline() == "orders was deleted\n"
            assert example.wait(20) == 0
        finally:
            example.kill()


def test_a_changed_pipeline_file_is_applied_while_it_runs(up: Up) -> None:
    file = up.folder / "pipeline.toml"
    before, family = file.read_text(), {one.pid for one in up.workers()}
    more = (
        '\n[connectors.copy]\n"connector.class" = "FileStreamSink"\n'
        'topics = "lines"\nfile = "copy.txt"\n'
    )
    try:
        file.write_text(before + more)
        shown = run(up, "apply", "pipeline.toml", "--diff")
        assert shown.returncode == 1
        assert "copy would be created" in shown.stdout
        assert "copy" not in ok(up, "connectors", "list")
        assert "lines unchanged\ncopy created\n" in ok(up, "apply", "pipeline.toml")
        up.wait_for("the copy", lambda: (up.folder / "copy.txt").is_file(), 30)
        assert ok(up, "apply", "pipeline.toml") == "lines unchanged\ncopy unchanged\n"
        file.write_text((before + more).replace('"copy.txt"', '"no/copy.txt"'))
        refused = run(up, "apply", "pipeline.toml")
        assert refused.returncode == 2
        assert "nothing was changed, the pipeline file has 1 fault" in refused.stderr
        file.write_text((before + more).replace('topics = "lines"', 'topics = "line"'))
        changed = run(up, "apply", "pipeline.toml")
        assert "copy changed" in changed.stdout
        assert "does not exist; did you mean lines?" in changed.stderr
        file.write_text(before)
        assert "copy is not in the file and stays" in run(up, "apply", "pipeline.toml").stdout
        assert "copy deleted" in ok(up, "apply", "pipeline.toml", "--prune")
        assert {one.pid for one in up.workers()} == family
    finally:
        file.write_text(before)


def test_applying_where_nothing_runs_says_what_to_start(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    done = subprocess.run(
        [str(HEADGATE), "apply", "pipeline.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert f"no headgate up runs on {tmp_path}/state" in done.stderr
    assert "next: start one: headgate up pipeline.toml" in done.stderr


@pytest.mark.exhaustive
def test_a_file_that_is_set_aside_is_shown(up: Up) -> None:
    """The file's task runs, so no state shows it."""
    (up.folder / "csv").mkdir()
    (up.folder / "csv" / "bad.csv").write_text("id\none\n")
    config = {"connector.class": "DirectorySource", "topic": "rows", "csv.types": "id: int64"}
    config |= {"name": "csv", "path": str(up.folder / "csv")}
    (up.folder / "csv.json").write_text(json.dumps(config))
    ok(up, "connectors", "create", "csv.json")
    ok(up, "connectors", "wait", "csv", "--timeout", "30")
    line = "csv-0 has set aside "
    up.wait_for("a file set aside", lambda: line in ok(up, "status"), 30)
    for shown in (ok(up, "status"), ok(up, "connectors", "show", "csv")):
        (told,) = [each for each in shown.splitlines() if each.startswith(line)]
        assert "bad.csv" in told and "column id is 'one', expected int64" in told
    assert line not in ok(up, "connectors", "show", "lines")
    ok(up, "connectors", "delete", "csv")
