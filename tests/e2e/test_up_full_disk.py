"""The disk of the data folder of a `headgate up` runs full. Once there is space again, all records
arrive."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.pipelines import HEADGATE, Up
from support.files.small_disk import small_file_system

pytestmark = pytest.mark.exhaustive

PIPELINE = """
[cluster]
data = "small/state"
runner = "thread"

[connectors.src]
"connector.class" = "FileStreamSource"
file = "in.txt"
topic = "t"

[connectors.snk]
"connector.class" = "FileStreamSink"
topics = "t"
file = "out.txt"
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", 6) as folder:
        yield folder


LINES = "".join(f'{{"n": {n}, "text": "{"x" * 60}"}}\n' for n in range(150_000))


def _up(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(HEADGATE), "up", "pipeline.toml", "--plain", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_it_ends_with_the_reason_and_goes_on_once_there_is_space(
    tmp_path: Path, small: Path
) -> None:
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "in.txt").write_text(LINES)
    full = _up(tmp_path)
    assert full.returncode == 1
    assert f"the disk of the data folder {small}/state is full" in full.stderr
    assert "Traceback" not in full.stdout + full.stderr
    again = _up(tmp_path)
    assert again.returncode in (1, 2)
    assert "is full: free some space, then start again" in again.stderr
    assert "Traceback" not in again.stdout + again.stderr
    command = ["mount", "-o", "remount,size=200m", str(small)]
    subprocess.run(command, check=True)
    done = _up(tmp_path, "--until-idle")
    assert done.returncode == 0, done.stdout + done.stderr
    # Its offsets could not be committed: lines may be there twice, and none is torn or missing.
    assert set((tmp_path / "out.txt").read_text().splitlines()) == set(LINES.splitlines())


def test_ctrl_c_meanwhile_ends_it_with_the_reason(tmp_path: Path, small: Path) -> None:
    """Once it ended with two tracebacks, because the summary could not be written."""
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "in.txt").write_text(LINES)
    up = Up(tmp_path).start()
    try:
        printed = tmp_path / "up.txt"
        up.wait_for("a full disk", lambda: "this ends in 10 s" in printed.read_text(), 60)
        assert up.end(signal.SIGINT) == 1
    finally:
        up.clean_up()
    text = printed.read_text()
    assert "Traceback" not in text
    reason = f"the disk of the data folder {small}/state is full: free some space, then start again"
    assert reason in text.partition("stopped with failures")[2]
