"""After `pip install headgate`, the commands that need no extra run, and the others say what is
missing."""

import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands.installed import ROOT, Installed, install, run
from support.depth import first

pytestmark = pytest.mark.slow

LINES = [f'{{"id":{number}}}' for number in range(500)]
GROUP = {"config": {"connectors": {"c": 1}}, "members": {"w1": {}}}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("installed"))


def write_pipeline(folder: Path, runner: str) -> Path:
    """A copy of the lines of in/ to out.txt."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "rows.jsonl").write_text("\n".join(LINES) + "\n")
    file = folder / "pipeline.toml"
    file.write_text(
        f'[cluster]\nworkers = 2\ndata = "state"\nrunner = "{runner}"\n'
        '[connectors.rows]\n"connector.class" = "DirectorySource"\npath = "in"\ntopic = "rows"\n'
        '[connectors.out]\n"connector.class" = "FileStreamSink"\ntopics = "rows"\n'
        'file = "out.txt"\n'
    )
    return file


def needs(extra: str) -> str:
    return f'headgate: this needs headgate[{extra}]: pip install "headgate[{extra}]"'


@pytest.mark.parametrize("runner", first(1, ["thread", "process"]))
def test_up_copies_files_without_any_extra(
    installed: Installed, tmp_path: Path, runner: str
) -> None:
    pipeline = write_pipeline(tmp_path, runner)
    done = installed.run("up", pipeline, "--until-idle", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted((tmp_path / "out.txt").read_text().splitlines()) == sorted(LINES)


def test_plugins_replay_assign_and_help_run_without_any_extra(
    installed: Installed, tmp_path: Path
) -> None:
    listed = installed.run("plugins", "--json", cwd=tmp_path)
    rows = json.loads(listed.stdout)
    assert {"DirectorySource", "SparkFileSink"} <= {row["name"] for row in rows}
    lacks = {row["name"]: row["error"] for row in rows if row["error"]}
    assert 'pip install "headgate[connectors]"' in lacks["DirectorySink"]
    assert all('pip install "headgate[' in error for error in lacks.values()), lacks
    options = installed.run("plugins", "SparkFileSink", cwd=tmp_path)
    assert "batch.records.max" in options.stdout
    record = {"offset": 0, "key": "connector-a", "value": '{"properties":{"x":"1"}}'}
    replayed = installed.run("replay", "-", cwd=tmp_path, text=json.dumps(record))
    assert json.loads(replayed.stdout)["connectors"]["a"]["config"] == {"x": "1"}
    assigned = installed.run("assign", "--policy", "kip415", cwd=tmp_path, text=json.dumps(GROUP))
    assert json.loads(assigned.stdout)["members"]["w1"]["assigned"]["tasks"] == ["c-0"]
    assert 'pip install "headgate[delta]"' in lacks["DeltaSink"]
    assert 'pip install "headgate[spark]"' in lacks["SparkSink"]
    for command in ("", "up", "worker", "doctor", "connectors wait", "offsets", "connector new"):
        shown = installed.run(*command.split(), "--help", cwd=tmp_path)
        assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("worker worker.properties", "kafka"),
        ("worker -- worker.properties", "kafka"),
        ("standalone worker.properties connector.json", "kafka"),
        ("doctor worker.properties", "kafka"),
        ("observe --bootstrap-servers 127.0.0.1:9 --group g", "kafka"),
        ("status --url http://127.0.0.1:9", "rest"),
        ("connectors list --url grpc://127.0.0.1:9", "grpc"),
        ("up pipeline.toml --until-idle", "spark"),
        ("up pipeline.toml --until-idle --timeline run.svg", "plots"),
        ("up pipeline.toml --until-idle --metrics 127.0.0.1:0", "rest"),
    ],
)
def test_a_command_that_needs_more_names_the_extra_and_ends_with_2(
    installed: Installed, tmp_path: Path, command: str, extra: str
) -> None:
    write_pipeline(tmp_path, "spark")
    done = installed.run(*command.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert needs(extra).removeprefix("headgate: ") in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("tolerance", first(1, ["all", "none"]))
@pytest.mark.exhaustive
def test_a_parquet_file_without_pyarrow_fails_its_task_and_skips_nothing(
    installed: Installed, tmp_path: Path, tolerance: str
) -> None:
    """No row is at fault, so no tolerance of errors may pass over the file."""
    pipeline = write_pipeline(tmp_path, "thread")
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "in" / "more.parquet")
    text = pipeline.read_text().replace(
        'topic = "rows"', f'topic = "rows"\n"errors.tolerance" = "{tolerance}"', 1
    )
    pipeline.write_text(text)
    done = installed.run("up", pipeline, "--until-idle", cwd=tmp_path)
    assert done.returncode == 1
    assert 'this needs headgate[connectors]: pip install "headgate[connectors]"' in done.stderr
    assert "skipped" not in done.stdout + done.stderr


def test_mypy_strict_passes_on_connectors_of_a_user(installed: Installed, tmp_path: Path) -> None:
    """The packages in the wheel say that they are typed, and the types fit."""
    examples = ("numbers_example.py", "shortest_example.py")
    for name in examples:
        shutil.copy(ROOT / "examples/connector" / name, tmp_path)
    done = run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable",
         installed.python, *examples],
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
