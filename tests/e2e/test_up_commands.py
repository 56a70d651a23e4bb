"""`headgate up` as a user meets it.

It ends when idle, goes on where it was, names the process that holds a folder, and leaves no
process behind however it ends.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.commands.pipelines import HEADGATE, Up
from support.depth import first

pytestmark = pytest.mark.slow

CLUSTER = """
[cluster]
workers = {workers}
data = "state"
runner = "{runner}"
"session.timeout.ms" = 4000
"heartbeat.interval.ms" = 500
"scheduled.rebalance.max.delay.ms" = 500
"offset.flush.interval.ms" = 500
"""
COPY = """
[connectors.lines]
"connector.class" = "FileStreamSource"
topic = "lines"
file = "in.txt"

[connectors.copy]
"connector.class" = "FileStreamSink"
topics = "lines"
file = "out.txt"
"""
SLOW = """
[connectors.slow]
"connector.class" = "DirectorySource"
path = "in"
topic = "slow"
"tasks.max" = 2
"records.per.second" = 200
"""

GHOST = """
[connectors.ghost]
"connector.class" = "FileStreamSink"
topics = "ghost"
file = "ghost.txt"
"""


def _write(folder: Path, connectors: str, runner: str = "process", workers: int = 2) -> None:
    text = CLUSTER.format(runner=runner, workers=workers) + connectors
    (folder / "pipeline.toml").write_text(text)


def _slow_input(folder: Path) -> None:
    (folder / "in").mkdir()
    for number in range(4):
        lines = "".join(f'{{"n": {n}}}\n' for n in range(5_000))
        (folder / "in" / f"{number}.jsonl").write_text(lines)


def _run(
    folder: Path, *arguments: str, seconds: float = 90, umask: int = -1
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(HEADGATE), "up", "pipeline.toml", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        umask=umask,
    )


def _none_left(up: Up, seconds: float) -> list[str]:
    """Commands of the processes of `up` that live on after so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(process.alive() for process in up.family.values()):
            break
        time.sleep(0.1)
    return [process.command for process in up.family.values() if process.alive()]


@pytest.mark.parametrize("runner", first(1, ["process", "thread"]))
def test_it_ends_when_idle_and_goes_on_where_it_was(tmp_path: Path, runner: str) -> None:
    _write(tmp_path, COPY, runner)
    lines = [f"line {n}" for n in range(3_000)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    first = _run(tmp_path, "--until-idle", "--timeline", "t.svg")
    assert first.returncode == 0, first.stdout + first.stderr
    before, _, _ = first.stdout.partition("starting 1 worker")
    told = [line for line in before.splitlines() if "note: copy: connector.class: " in line]
    assert len(told) == 1 and "FileStreamSink writes at least once" in told[0]
    assert (tmp_path / "out.txt").read_text().splitlines() == lines
    assert "<svg" in (tmp_path / "t.svg").read_text()
    summary = json.loads((tmp_path / "state" / "logs" / "summary.json").read_text())
    assert summary["exit_code"] == 0
    assert summary["connectors"]["copy"]["lag"] == 0
    assert not list((tmp_path / "state" / "workers").iterdir())

    more = ["one more", "and one"]
    with (tmp_path / "in.txt").open("a") as out:
        out.write("\n".join(more) + "\n")
    second = _run(tmp_path, "--until-idle")
    assert second.returncode == 0, second.stdout + second.stderr
    assert (tmp_path / "out.txt").read_text().splitlines() == [*lines, *more]


@pytest.mark.parametrize("runner", ["process", "thread"])
@pytest.mark.exhaustive
def test_the_data_folder_is_its_owners_alone_and_what_sinks_write_is_not(
    tmp_path: Path, runner: str
) -> None:
    _write(tmp_path, COPY, runner)
    (tmp_path / "in.txt").write_text("a\n")
    data = tmp_path / "state"
    for _ in range(2):  # new, and as an earlier version has left it
        done = _run(tmp_path, "--until-idle", umask=0o022)
        assert done.returncode == 0, done.stdout + done.stderr
        found = [data, *data.rglob("*")]
        assert len(found) > 5
        assert [one for one in found if one.stat().st_mode & 0o077] == []
        assert (tmp_path / "out.txt").stat().st_mode & 0o777 == 0o644
        for one in found:
            one.chmod(0o755 if one.is_dir() else 0o644)


@pytest.mark.exhaustive
def test_connectors_that_the_file_no_longer_names_stay_or_are_pruned(tmp_path: Path) -> None:
    _write(tmp_path, COPY, "thread", workers=1)
    (tmp_path / "in.txt").write_text("a\n")
    assert _run(tmp_path, "--until-idle").returncode == 0
    _write(tmp_path, COPY.partition("[connectors.copy]")[0], "thread", workers=1)
    kept = _run(tmp_path, "--until-idle")
    assert "connector copy is not in the pipeline file and stays (--prune deletes)" in kept.stdout
    assert kept.returncode == 0
    pruned = _run(tmp_path, "--until-idle", "--prune")
    assert "deleting connector copy: done" in pruned.stdout
    assert "copy" not in _run(tmp_path, "--until-idle").stdout


@pytest.mark.exhaustive
def test_a_bad_file_ends_until_idle_with_its_reason(tmp_path: Path) -> None:
    _write(tmp_path, SLOW.replace("200", "0") + COPY, "thread")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "in" / "bad.csv").write_text('a,b\n1,2\n"1,2,3\n4,5\n')
    (tmp_path / "in.txt").write_text("a\nb\n")
    done = _run(tmp_path, "--until-idle")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "task slow-" in done.stderr
    assert "set aside in/bad.csv at byte 8: bad CSV row" in done.stderr
    assert (tmp_path / "out.txt").read_text() == "a\nb\n"  # the others were awaited


@pytest.mark.exhaustive
def test_the_second_one_is_told_who_holds_the_folder_and_may_join(
    tmp_path: Path, ups: list[Up]
) -> None:
    _write(tmp_path, SLOW, workers=1)
    _slow_input(tmp_path)
    first = Up(tmp_path).start()
    ups.append(first)
    first.wait_for("records", lambda: first.records("slow") > 100, 40)
    assert first.process is not None

    second = _run(tmp_path)
    assert second.returncode == 2
    assert f"in use by process {first.process.pid}" in second.stderr
    assert "--join" in second.stderr

    joined = Up(tmp_path, ("--join",)).start()
    ups.append(joined)

    def shares() -> bool:
        text = joined.tail()
        return "RUNNING on worker-2" in text and "worker-2 is up" in text

    joined.wait_for("work for the worker that joined", shares, 40)
    joined.look()
    assert joined.end(signal.SIGINT) == 0
    assert _none_left(joined, 5) == []
    first.look()
    assert first.end(signal.SIGINT) == 0
    assert _none_left(first, 5) == []


def test_a_failure_is_told_in_one_line_and_ends_in_code_1(tmp_path: Path, ups: list[Up]) -> None:
    """And a topic that nobody writes is told before any worker runs."""
    failing = COPY.replace('"out.txt"', '"/dev/full"') + GHOST
    _write(tmp_path, failing, "thread", 1)
    text = (tmp_path / "pipeline.toml").read_text()
    text = text.replace("[cluster]", '[cluster]\n"headgate.restart.max" = 0')
    (tmp_path / "pipeline.toml").write_text(text)
    (tmp_path / "in.txt").write_text("one\n")
    up = Up(tmp_path).start()
    ups.append(up)
    printed = tmp_path / "up.txt"
    up.wait_for("failure", lambda: "task copy-0 FAILED" in printed.read_text(), 60)
    time.sleep(1.0)  # whatever else would be said of it
    running = [line for line in printed.read_text().splitlines() if "No space left" in line]
    assert len(running) == 1, running
    assert up.end(signal.SIGINT) == 1
    text = printed.read_text()
    first_words = text.partition("worker-1")[0]
    assert "warning: sink ghost: no source writes topic ghost, which does not exist" in first_words
    assert "Traceback" not in text
    assert '"trace"' not in text
    assert "stopped with failures; the next headgate up goes on from here" in text
    assert (
        "\n  task copy-0 FAILED on worker-1: OSError: "
        in text.partition("stopped with failures")[2]
    )
    assert "Traceback" in (tmp_path / "state" / "logs" / "worker-1.log").read_text()


def test_joining_nobody_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, COPY)
    done = _run(tmp_path, "--join")
    assert done.returncode == 2
    assert "nobody runs a cluster on" in done.stderr


def test_a_worker_that_dies_is_started_again_and_said_so(tmp_path: Path, ups: list[Up]) -> None:
    _write(tmp_path, SLOW)
    _slow_input(tmp_path)
    up = Up(tmp_path).start()
    ups.append(up)
    up.wait_for("records", lambda: up.records("slow") > 200, 40)
    victim = up.workers()[0]
    os.kill(victim.pid, signal.SIGKILL)
    up.wait_for("word of it", lambda: "was killed by SIGKILL; it starts again" in up.tail(), 10)
    up.wait_for(
        "another process", lambda: len([w for w in up.workers() if w.pid != victim.pid]) == 2, 15
    )
    at_kill = up.records("slow")
    up.wait_for("new records", lambda: up.records("slow") > at_kill + 500, 40)
    assert up.end(signal.SIGTERM) == 0
    assert "stopped; the next headgate up goes on from here" in up.tail()
    assert _none_left(up, 5) == []


@pytest.mark.parametrize("runner", first(1, ["process", "spark"]))
def test_all_that_it_started_ends_within_10_s_of_its_sigkill(
    tmp_path: Path, ups: list[Up], runner: str
) -> None:
    _write(tmp_path, SLOW, runner)
    _slow_input(tmp_path)
    up = Up(tmp_path).start()
    ups.append(up)
    up.wait_for("records", lambda: up.records("slow") > 100, 120)
    commands = [process.command for process in up.look()]
    assert sum("headgate_runtime.worker" in command for command in commands) == 2
    assert any("java" in command for command in commands) == (runner == "spark")
    up.end(signal.SIGKILL)
    assert _none_left(up, 10) == []


@pytest.mark.exhaustive
def test_a_second_ctrl_c_kills(tmp_path: Path, ups: list[Up]) -> None:
    _write(tmp_path, SLOW)
    _slow_input(tmp_path)
    up = Up(tmp_path).start()
    ups.append(up)
    up.wait_for("records", lambda: up.records("slow") > 100, 40)
    for worker in up.workers():
        os.kill(worker.pid, signal.SIGSTOP)  # it does not stop cleanly
    assert up.process is not None
    # A stopped worker is continued to hear SIGTERM, so give it none of the time it needs.
    up.process.send_signal(signal.SIGINT)
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(10) in (0, 130)
    assert _none_left(up, 5) == []


def test_a_file_that_is_no_log_of_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    _write(tmp_path, COPY)
    (tmp_path / "state").mkdir()
    foreign = tmp_path / "state" / "headgate.db"
    foreign.write_bytes(b"not a database at all, but somebody's work" * 100)
    before = foreign.read_bytes()
    done = _run(tmp_path)
    assert done.returncode == 2
    assert "headgate.db" in done.stderr
    assert "Traceback" not in done.stderr
    assert foreign.read_bytes() == before
