"""With bad lines, `headgate up` puts a source's and a sink's dead letters into their topics and
copies all other lines."""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from support.commands.pipelines import HEADGATE
from support.task.letters import assert_at_least_once, headers_of

from headgate.ports import RefusedError, TransportError
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


KILLS = 5
KILLED = """
[cluster]
data = "state"
runner = "process"

[connectors.files]
"connector.class" = "DirectorySource"
path = "in"
topic = "rows"
"file.settle.ms" = 0
"batch.size" = 200
"errors.tolerance" = "all"
"errors.deadletterqueue.topic.name" = "bad-lines"

[connectors.copy]
"connector.class" = "FileStreamSink"
topics = "rows"
file = "out.txt"
"value.converter" = "JsonConverter"
"value.converter.schemas.enable" = "false"
transforms = "typed"
"transforms.typed.type" = "Cast$Value"
"transforms.typed.spec" = "n:int32"
"errors.tolerance" = "all"
"errors.deadletterqueue.topic.name" = "bad-rows"
"""


def _rows(folder: Path) -> int:
    """Records in the topic of the source; 0 before there is a log."""
    try:
        with closing(open_reader(folder / "state")) as log:
            return sum(log.record_log.end_offsets(["rows"]).values())
    except (RefusedError, TransportError):
        return 0


def test_after_kills_a_sources_letters_are_there_once_and_a_sinks_at_least_once(
    tmp_path: Path,
) -> None:
    """All processes are killed at random places, then a last run takes what is left."""
    (tmp_path / "pipeline.toml").write_text(KILLED)
    (tmp_path / "in").mkdir()
    count, chance = 60_000, random.Random(26)
    lines = [f'{{"n":{n}}}' for n in range(count)]
    broken = {n: f'{{"n":{n}' for n in range(7, count, 101)}
    odd = {n: f'{{"n":"no {n}"}}' for n in range(11, count, 103) if n not in broken}
    for n, line in (broken | odd).items():
        lines[n] = line
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    command = [str(HEADGATE), "up", "pipeline.toml", "--plain"]
    for _ in range(KILLS):
        target = _rows(tmp_path) + chance.randint(1, count // 6)
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True
        ) as running:
            deadline = time.monotonic() + 60
            while _rows(tmp_path) < target:
                assert time.monotonic() < deadline and running.poll() is None
                time.sleep(0.01)
            os.killpg(running.pid, signal.SIGKILL)
    assert _rows(tmp_path) < count - len(broken)  # the kills were in the middle of it
    ended = subprocess.run(
        [*command, "--until-idle"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    with closing(open_reader(tmp_path / "state")) as log:
        found = {
            topic: [
                (record.value or b"").decode()
                for (_, part), end in log.record_log.end_offsets([topic]).items()
                for record in log.record_log.read(topic, part, 0, end, 10 * count)
            ]
            for topic in ("rows", "bad-lines", "bad-rows")
        }
    assert Counter(found["bad-lines"]) == Counter(broken.values())
    assert Counter(found["rows"]) == Counter(lines[n] for n in range(count) if n not in broken)
    assert_at_least_once(found["bad-rows"], odd.values(), KILLS)
    copied = Counter((tmp_path / "out.txt").read_text().splitlines())
    good = {f"{{n={n}}}" for n in range(count) if n not in broken and n not in odd}
    assert good <= copied.keys()
