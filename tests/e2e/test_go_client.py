"""A client in Go, made from our protos alone, runs the life of a connector on a real `headgate
up`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.pipelines import Up

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

CLIENT = Path(__file__).resolve().parents[2] / "examples/grpc/go"
GO_INSTALLS_TO = "/usr/local/go/bin"
PIPELINE = """
[cluster]
workers = 1
data = "state"
runner = "process"

[connectors.lines]
"connector.class" = "FileStreamSource"
topic = "lines"
file = "in.txt"
"""
PRINTED = """\
services grpc.health.v1.Health grpc.reflection.v1.ServerReflection \
grpc.reflection.v1alpha.ServerReflection headgate.v1.ClusterService \
headgate.v1.ConnectorService
created orders
waited for RUNNING
watching orders
watch saw PAUSED
watch saw RUNNING
offset {"position": 8}
waited for STOPPED
altered to {"position": 0}
offsets after the reset: 0
watch saw the deletion
gone orders
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built from generated stubs as docs/run/grpc.md says."""
    path = f"{os.environ['PATH']}:{GO_INSTALLS_TO}"
    go = shutil.which("go", path=path)
    assert go is not None, "this test needs Go 1.23 or newer on PATH"
    program = tmp_path_factory.mktemp("go") / "lifecycle"
    for command in (["sh", "generate.sh", sys.executable], [go, "build", "-o", str(program), "."]):
        done = subprocess.run(
            command,
            cwd=CLIENT,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return program


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    up = Up(tmp_path).start()
    try:
        up.wait_for("the records", lambda: up.records("lines") == 2, 60)
        yield up
        assert up.end() == 0
    finally:
        up.clean_up()


def test_a_client_in_go_runs_the_life_of_a_connector(client: Path, up: Up) -> None:
    done = subprocess.run(
        [str(client), "unix:state/grpc.sock", "in.txt", "orders"],
        cwd=up.folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout == PRINTED
    assert up.records("orders") == 2
