"""`headgate up` over files of which some are bad copies the good ones and names the others."""

import json
import subprocess
from pathlib import Path

import pytest
from support.commands.pipelines import HEADGATE

pytestmark = pytest.mark.slow

PIPELINE = """
[cluster]
data = "state"
runner = "process"

[connectors.files]
"connector.class" = "DirectorySource"
path = "in"
topic = "lines"
"file.settle.ms" = 100

[connectors.copy]
"connector.class" = "FileStreamSink"
topics = "lines"
file = "out.txt"
"""


def _up(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(HEADGATE), "up", "pipeline.toml", "--until-idle", "--plain"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.exhaustive
def test_bad_files_are_set_aside_named_and_taken_up_again(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "good.jsonl").write_text('{"n":1}\n{"n":2}')
    (folder / "latin.csv").write_bytes(b"n\nJos\xe9\n")
    (folder / "half.jsonl").write_text('{"n":3}\n{"half":')
    ended = _up(tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "task files-0 set aside in/latin.csv at byte 2: bad CSV row: not UTF-8" in ended.stderr
    assert "in/half.jsonl at byte 8: the last line has no newline" in ended.stderr
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert sorted(lines) == ['{"n":1}', '{"n":2}', '{"n":3}']
    summary = json.loads((tmp_path / "state" / "logs" / "summary.json").read_text())
    assert len(summary["quarantined"]) == 2
    (folder / "latin.csv").write_text("n\nJosé\n")
    with (folder / "half.jsonl").open("a") as file:
        file.write("4}\n")
    ended = _up(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert sorted(lines) == sorted(['{"n":1}', '{"n":2}', '{"n":3}', '{"n":"José"}', '{"half":4}'])
