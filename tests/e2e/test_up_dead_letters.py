"""`headgate up` with bad lines: a source's and a sink's stand in their queues, the rest arrives."""

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from support.commands.pipelines import HEADGATE
from support.task.letters import headers_of

from headgate_embedded import open_reader

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PIPELINE = """
[cluster]
data = "state"
runner = "process"

[connectors.files]
"connector.class" = "DirectorySource"
path = "in"
topic = "rows"
"file.settle.ms" = 100
"errors.tolerance" = "all"
"errors.deadletterqueue.topic.name" = "bad-lines"

[connectors.copy]
"connector.class" = "FileStreamSink"
topics = "rows"
file = "out.txt"
transforms = "typed"
"transforms.typed.type" = "Cast$Value"
"transforms.typed.spec" = "n:int32"
"value.converter" = "JsonConverter"
"value.converter.schemas.enable" = "false"
"errors.tolerance" = "all"
"errors.deadletterqueue.topic.name" = "bad-rows"
"errors.deadletterqueue.context.headers.enable" = true

[connectors.letters]
"connector.class" = "FileStreamSink"
topics = "bad-rows,bad-lines"
file = "letters.txt"
"""


def test_bad_lines_of_both_sides_are_in_their_queues(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "in").mkdir()
    lines = ['{"n":1}', '{"n":', '{"n":"two"}', '{"n":3}', "oops", '{"n":4}']
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    ended = subprocess.run(
        [str(HEADGATE), "up", "pipeline.toml", "--until-idle", "--plain"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "files: at least 2 records skipped" in ended.stdout
    assert "they are in the dead letter queue bad-rows" in ended.stdout
    assert (tmp_path / "out.txt").read_text().splitlines() == ["{n=1}", "{n=3}", "{n=4}"]
    letters = (tmp_path / "letters.txt").read_text().splitlines()
    assert sorted(letters) == sorted(['{"n":', '{"n":"two"}', "oops"])
    with closing(open_reader(tmp_path / "state")) as log:
        found = log.record_log.read("bad-lines", 0, 0, 2, 10)
        rows = log.record_log.read("bad-rows", 0, 0, 1, 10)
    where = json.loads(headers_of(found[1])["__headgate.errors.source.offset"] or "")
    assert where["start"] == len("\n".join(lines[:4])) + 1
    assert headers_of(rows[0])["__connect.errors.stage"] == "TRANSFORMATION"
