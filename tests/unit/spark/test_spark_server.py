"""The Spark server as far as it works without a JVM: commands, messages, and the guard that ends
all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate_spark import server as server_module
from headgate_spark.guard import Guarded, descendants
from headgate_spark.server import ServerError, SparkServer, check_java, forced_conf
from headgate_spark.slots import plan


def test_settings_that_exactly_once_depends_on_cannot_be_overridden(tmp_path: Path) -> None:
    server = SparkServer("local[2]", 5, tmp_path, {"spark.speculation": "true", "spark.x": "y"})
    command = server._command()
    assert "spark.speculation=false" in command
    assert "spark.speculation=true" not in command
    assert "spark.x=y" in command
    assert command[command.index("--master") + 1] == "local[5]"
    assert "spark.default.parallelism=2" in command


def test_a_cluster_has_the_parallelism_that_its_user_says(tmp_path: Path) -> None:
    """Headgate cannot know how many of the cluster's cores compute."""
    parallelism = {"spark.default.parallelism": "64"}
    command = SparkServer("spark://h:7077", 5, tmp_path, parallelism)._command()
    assert [each for each in command if "spark.default.parallelism" in each] == [
        "spark.default.parallelism=64"
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.speculation", "false"),
        ("spark.python.worker.reuse", "false"),
        ("spark.python.task.killTimeout", "0ms"),
        ("spark.executor.heartbeatInterval", "3s"),
        ("spark.network.timeout", "20s"),
        ("spark.network.timeoutInterval", "5s"),
    ],
)
def test_forced_settings(key: str, value: str) -> None:
    assert forced_conf(plan("local[2]", 2, 2))[key] == value


def test_java_reads_names_as_utf8_whatever_the_users_locale_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a locale that the machine lacks, Java finds no file whose name has non-ASCII
    letters."""
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    environment = SparkServer("local[2]", 2, tmp_path)._environment(None)
    command = ["java", "-XshowSettings:properties", "-version"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "sun.jnu.encoding = UTF-8" in shown.stderr


def test_a_folder_of_any_name_is_named_as_it_is(tmp_path: Path) -> None:
    """Spark would make a folder named a%20b."""
    command = SparkServer("local[2]", 2, tmp_path / "a b")._command()
    assert f"spark.sql.warehouse.dir=file://{tmp_path}/a b/warehouse" in command


def test_the_address_of_sparks_pages(tmp_path: Path) -> None:
    server = SparkServer("local[2]", 2, tmp_path)
    assert server.ui is not None
    port = server.ui.removeprefix("http://127.0.0.1:")
    assert f"spark.ui.port={port}" in server._command()
    chosen = SparkServer("local[2]", 2, tmp_path, {"spark.ui.port": "4050"})
    assert chosen.ui == "http://127.0.0.1:4050"
    assert "spark.ui.port=4050" in chosen._command()
    assert SparkServer("local[2]", 2, tmp_path, {"spark.ui.enabled": "false"}).ui is None
    kill = SparkServer("local[2]", 2, tmp_path, {"spark.ui.killEnabled": "true"})._command()
    assert "spark.ui.killEnabled=false" in kill


def test_missing_java_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(server_module.shutil, "which", lambda _name: None)
    with pytest.raises(ServerError, match=r"no java on the path.*openjdk-17-jre-headless"):
        check_java()


def test_old_java_is_told_with_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ServerError, match=r"needs Java 17, but .* is Java 8"):
        check_java()


def test_a_start_that_fails_shows_the_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        SparkServer, "_command", lambda _self: ["sh", "-c", "echo bad setting >&2; exit 3"]
    )
    server = SparkServer("local[1]", 1, tmp_path)
    with pytest.raises(ServerError, match=r"ended with code 3 while it started.*\n.*bad setting"):
        server.start()
    assert server.poll() == 3
    server.stop()
    assert server.poll() is None


NO_MASTER = """\
26/11/27 06:06:02 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master h:77
org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: java.net.ConnectException: finishConnect(..) failed with error(-111): Connection refused
26/11/27 06:06:22 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master h:77
26/11/27 06:07:02 ERROR StandaloneSchedulerBackend: Application has been killed. \
Reason: All masters are unresponsive! Giving up.
Exception in thread "main" java.lang.IllegalStateException: Cannot call methods on a \
stopped SparkContext.
"""
ERROR = """26/11/27 06:06:02 WARN Utils: something
26/11/27 06:06:03 ERROR SparkContext: Error initializing SparkContext.
java.lang.IllegalArgumentException: spark.executor.memory
Caused by: java.lang.NumberFormatException: Size must be specified as bytes
26/11/27 06:06:03 ERROR Utils: again
"""
MAIN = 'Exception in thread "main" java.lang.X: one\n\tat a.b\nCaused by: java.lang.Y: two\n'


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (NO_MASTER, "no master answers at h:77: start it, or correct its address"),
        (
            ERROR,
            "Error initializing SparkContext.; java.lang.NumberFormatException: Size must be "
            "specified as bytes",
        ),
        (MAIN, "java.lang.X: one; java.lang.Y: two"),
        ("26/11/27 06:06:02 WARN Utils: Failed to connect to master h:77\n", ""),
        ("", ""),
    ],
    ids=["no master", "an error", "main", "a warning", "nothing"],
)
def test_why_spark_ended_is_one_line(tmp_path: Path, log: str, reason: str) -> None:
    """The line is the reason in Spark's log, if there is one. Otherwise the end of the log is
    shown."""
    server = SparkServer("local[2]", 2, tmp_path)
    server.log_file.parent.mkdir(parents=True, exist_ok=True)
    server.log_file.write_text(log)
    told = server._tail()
    if reason:
        assert told == f": {reason}; its log is {server.log_file}"
    else:
        assert told.startswith(f"; the end of its log {server.log_file}:")


def test_its_folders_are_for_their_owner_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark's scratch files, too, whose modes Java gives them by the umask."""
    monkeypatch.setattr(SparkServer, "_command", lambda _self: ["sh", "-c", "exit 3"])
    folder = tmp_path / "spark"
    (folder / "scratch").mkdir(parents=True)
    for one in (folder, folder / "scratch"):
        one.chmod(0o777)
    with pytest.raises(ServerError):
        SparkServer("local[1]", 1, folder).start()
    assert [one.stat().st_mode & 0o077 for one in (folder, folder / "scratch")] == [0, 0]


def test_a_start_that_takes_too_long_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(SparkServer, "_command", lambda _self: ["sleep", "60"])
    server = SparkServer("local[1]", 1, tmp_path, start_timeout_s=0.3)
    with pytest.raises(ServerError, match=r"does not listen after 0\.3 s"):
        server.start()


_PARENT = """
import subprocess, sys, os, time
guard = subprocess.Popen(
    [sys.executable, "-m", "headgate_spark.guard", str(os.getpid()),
     "sh", "-c", "(setsid sleep 600 &); sleep 600"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
guard.stdout.readline()
if "fork" in sys.argv and os.fork() == 0:
    time.sleep(600)  # holds the pipe open, as a fork of the parent would
time.sleep(0.3)
print(guard.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["plain", "fork"])
def test_the_guard_ends_everything_when_its_parent_is_killed(kind: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, kind], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    guard = int(parent.stdout.readline())
    below = descendants(guard)
    forks = [pid for pid in descendants(parent.pid) if pid not in (guard, *below)]
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 8
    while any(map(_alive, [guard, *below])) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in (guard, *below) if _alive(pid)]
    for pid in (*left, *forks):
        os.kill(pid, signal.SIGKILL)
    parent.stdout.close()
    assert len(below) == 3  # a shell, its child, and one that lost its parent
    assert left == []


def test_what_a_guarded_process_prints_goes_to_its_log(tmp_path: Path) -> None:
    """More than a pipe holds, which nobody would read."""
    command = ["sh", "-c", "head -c 300000 /dev/zero; echo said >&2; exit 3"]
    with (tmp_path / "log").open("wb") as log:
        process = Guarded(command, tmp_path, log, os.environ)
    assert process.wait(20) == 3
    process.end()
    written = (tmp_path / "log").read_bytes()
    assert written.count(b"\0") == 300000 and b"said" in written


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_executors_of_a_local_cluster_ask_for_the_memory_they_get(tmp_path: Path) -> None:
    server = SparkServer("local-cluster[1,1,512]", 2, tmp_path)
    assert "spark.executor.memory=512m" in server._command()
