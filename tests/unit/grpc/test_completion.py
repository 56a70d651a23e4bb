"""The shell completes commands and names of connectors."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.depth import first_rows
from support.grpc.worker import Served, grpc_worker
from typer.testing import CliRunner

from headgate_grpc.v1 import connector_pb2
from headgate_runtime.command.parser import app
from headgate_runtime.remote.complete import FIND_S

HEADGATE = Path(sys.executable).with_name("headgate")
SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with grpc_worker(tmp_path_factory.mktemp("completion")) as served:
        for name in ("orders-in", "orders-out", "payments"):
            served.client.create(name, SINK, connector_pb2.TARGET_STATE_STOPPED)
            served.client.wait(name)
        yield served


def words(line: str, address: str) -> dict[str, str]:
    """The variables by which bash asks for the last word of `line`."""
    return {
        "_HEADGATE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "HEADGATE_URL": address,
    }


def complete(line: str, address: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Return the completions that bash gets for the last word of `line`."""
    environment = {**os.environ, **words(line, address)}
    return subprocess.run(
        [str(HEADGATE)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    first_rows(
        1,
        [
            ("headgate connectors pause orders-in ord", ["orders-out"]),
            ("headgate connectors pause ord", ["orders-in", "orders-out"]),
            ("headgate connectors patch pay", ["payments"]),
            ("headgate off", ["offsets"]),
            ("headgate offsets show pay", ["payments"]),
        ],
    ),
)
def test_words_are_completed(
    served: Served, line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The completion runs in this process, with time enough for a busy machine."""
    monkeypatch.setattr("headgate_runtime.remote.complete.FIND_S", 30.0)
    environment = words(line, served.address)
    done = CliRunner().invoke(app, [], prog_name="headgate", env=environment)
    assert done.stdout.split() == expected


def test_no_cluster_means_no_names_and_no_message(tmp_path: Path) -> None:
    done = complete("headgate connectors pause o", "", tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_a_cluster_that_does_not_answer_keeps_nobody_waiting(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        port = silent.getsockname()[1]
        done = complete("headgate connectors pause o", f"grpc://127.0.0.1:{port}", tmp_path)
        took = time.monotonic() - began
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert took < FIND_S + 10  # a call has 90 seconds otherwise


INSTALLED = """
headgate --install-completion > /dev/null && source ~/.bashrc || exit 1
words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); $function headgate; echo "${COMPREPLY[@]}"; }
function=$(complete -p headgate | sed 's/.*-F \\([^ ]*\\).*/\\1/')
words headgate connectors pau
words headgate connectors pause --u
words headgate offsets res
"""
"""As docs/run/command-line.md has it: installed, then a new bash. The rest is what bash does when
Tab is pressed."""


@pytest.mark.exhaustive
def test_bash_completes_once_it_is_installed(tmp_path: Path) -> None:
    path = f"{HEADGATE.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path}
    done = subprocess.run(
        ["bash", "-c", INSTALLED],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["pause", "--url", "reset"]
