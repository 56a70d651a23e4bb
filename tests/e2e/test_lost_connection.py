"""A `headgate up` is killed in the middle of a call. The client and its user learn what is known of
the outcome."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.pipelines import HEADGATE, Up

from headgate_grpc.client import Client, HeadgateError

pytestmark = pytest.mark.slow

PIPELINE = """
[cluster]
workers = 1
data = "state"
runner = "thread"

[connectors.lines]
"connector.class" = "FileStreamSource"
topic = "lines"
file = "in.txt"
"""
PAUSE = ("connectors", "pause", "lines")
READ = ("offsets", "show", "lines")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    (tmp_path / "in.txt").write_text("one\n")
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    up = Up(tmp_path).start()
    try:
        up.wait_for("a socket", lambda: (tmp_path / "state/grpc.sock").is_socket(), 60)
        up.wait_for("lines", lambda: up.records("lines") == 1, 60)
        yield up
    finally:
        up.clean_up()


def asked(up: Up, *arguments: str) -> "subprocess.Popen[str]":
    environment = {key: value for key, value in os.environ.items() if key != "HEADGATE_URL"}
    return subprocess.Popen(
        [str(HEADGATE), *arguments, "--url", "unix:state/grpc.sock"],
        cwd=up.folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def sockets(up: Up) -> int:
    """Return the number of sockets of the process of `up`."""
    assert up.process is not None
    found = 0
    for link in Path(f"/proc/{up.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found += str(link.readlink()).startswith("socket:")
    return found


@pytest.mark.exhaustive
def test_a_call_that_breaks_off_says_what_is_known(up: Up) -> None:
    """The worker is stopped, so that calls are under way when the process that took them goes."""
    assert up.process is not None
    for worker in up.workers():
        os.kill(worker.pid, signal.SIGSTOP)
    errors: list[HeadgateError] = []
    before = sockets(up)

    def resumed() -> None:
        with Client(f"unix:{up.folder}/state/grpc.sock") as client:
            try:
                client.resume("lines")
            except HeadgateError as error:
                errors.append(error)

    thread = threading.Thread(target=resumed)
    thread.start()
    commands = [asked(up, *PAUSE), asked(up, *READ)]
    up.wait_for("three calls", lambda: sockets(up) >= before + 3, 60)
    time.sleep(3.0)  # from the connection to the call
    assert thread.is_alive() and all(each.poll() is None for each in commands)
    os.kill(up.process.pid, signal.SIGKILL)
    thread.join(60)
    told = []
    for command in commands:
        _, text = command.communicate(timeout=60)
        told.append((command.returncode, text))
    (error,) = errors
    assert error.broke_off and error.may_have_been_done, error
    assert not error.may_be_repeated and not error.not_sent
    assert "it may have been done, look before you ask again" in str(error)
    assert told[0][0] == told[1][0] == 1, told
    assert "has not answered" in told[0][1] and "it may have been done, or not" in told[0][1]
    assert "next: look with headgate connectors show lines before you ask again" in told[0][1]
    assert "Nothing was to be changed" in told[1][1] and "next: ask again" in told[1][1]
    with (
        Client(f"unix:{up.folder}/state/grpc.sock") as client,
        pytest.raises(HeadgateError) as gone,
    ):
        client.pause("lines")
    assert gone.value.not_sent and gone.value.may_be_repeated
    assert not gone.value.may_have_been_done
