"""``headgate connector new``: the project it makes, and the names it refuses."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate_runtime.command import new_project
from headgate_runtime.command.new_project import ProjectError, make_project, name_problem
from headgate_runtime.command.parser import app
from headgate_runtime.up.pipeline import parse

BIN = Path(sys.executable).parent


def run(folder: Path, *command: str, path: Path | None = None) -> str:
    env = {**os.environ, "PYTHONPATH": str(path or ""), "MYPYPATH": "src"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(project: Path) -> Path:
    """A folder with the project's wheel in it."""
    run(project, sys.executable, "-m", "hatchling", "build", "-t", "wheel")
    (wheel,) = (project / "dist").glob("*.whl")
    site = project.parent / "site"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    return site


@pytest.mark.parametrize(
    ("kind", "count"), [("source", 10), pytest.param("sink", 13, marks=pytest.mark.exhaustive)]
)
def test_the_project_passes_its_own_tests(kind: str, count: int, tmp_path: Path) -> None:
    project = make_project("acme-queue", kind, tmp_path)
    told = run(project, sys.executable, "-m", "pytest", "-q", "--connector-points", "4")
    assert f"{count} passed in" in told
    assert "skipped" not in told


def test_its_wheel_announces_the_connector_and_its_pipeline_has_no_fault(tmp_path: Path) -> None:
    project = make_project("acme-queue", "source", tmp_path)
    site = installed(project)
    run(project, str(BIN / "headgate"), "up", "pipeline.toml", "--check", path=site)
    told = run(tmp_path, str(BIN / "headgate"), "plugins", "AcmeQueueSource", path=site)
    assert "file" in told
    assert "topic" in told
    assert (site / "acme_queue" / "py.typed").is_file()


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_its_pipeline_has_no_fault(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(f"acme-looked-at-{kind}", kind, tmp_path)
    monkeypatch.syspath_prepend(project / "src")
    text = (project / "pipeline.toml").read_text()
    stem = kind.capitalize()
    name = f"AcmeLookedAt{stem}{stem}"
    parse(text.replace(name, f"acme_looked_at_{kind}.{kind}:{name}"), project / "pipeline.toml")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["source", "sink"])
def test_its_pipeline_runs_and_its_types_are_strict(kind: str, tmp_path: Path) -> None:
    project = make_project("acme-queue", kind, tmp_path)
    site = installed(project)
    headgate = str(BIN / "headgate")
    run(project, headgate, "up", "pipeline.toml", "--until-idle", "--plain", path=site)
    lines = (project / "lines.txt").read_text()
    assert lines == (project / "README.md").read_text()
    files = ["src/acme_queue", "tests"]
    mypy = [sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases", "--config-file="]
    run(project, *mypy, *files)
    run(project, str(BIN / "ruff"), "check", "--isolated", "--select", "E,F,I,B,UP", *files)
    run(project, str(BIN / "ruff"), "format", "--isolated", "--check")


PAGE = Path(__file__).resolve().parents[3] / "docs" / "build" / "testing.md"


@pytest.mark.parametrize(("name", "kind"), [("acme-queue", "source"), ("acme-table", "sink")])
def test_the_page_on_testing_shows_what_it_makes(name: str, kind: str, tmp_path: Path) -> None:
    project = make_project(name, kind, tmp_path)
    made = (project / "tests" / f"test_{kind}.py").read_text()
    blocks = PAGE.read_text().split("```python\n")[1:]
    shown = [block.partition("```")[0].strip() for block in blocks]
    heading = f"class TestAcme{'Queue' if kind == 'source' else 'Table'}{kind.capitalize()}("
    (suite,) = [block for block in shown if block.startswith(heading)]
    assert suite in made


def test_it_says_where_to_install_the_project(tmp_path: Path) -> None:
    """Elsewhere pip takes the other project of that name."""
    done = CliRunner().invoke(app, ["connector", "new", "acme-queue", "--folder", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for text in (done.output, (tmp_path / "acme-queue" / "README.md").read_text()):
        assert "is installed in" in text and "PyPI" in text and "another one" in text


def test_an_existing_folder_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "acme-queue").mkdir()
    (tmp_path / "acme-queue" / "mine.txt").write_text("mine")
    done = CliRunner().invoke(app, ["connector", "new", "acme-queue", "--folder", str(tmp_path)])
    assert done.exit_code == 2
    assert "acme-queue is there already, and is left as it is" in done.output
    assert [path.name for path in (tmp_path / "acme-queue").iterdir()] == ["mine.txt"]


def test_a_file_of_that_name_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "acme-queue").write_text("mine")
    with pytest.raises(ProjectError, match="is there already"):
        make_project("acme-queue", "source", tmp_path)
    assert (tmp_path / "acme-queue").read_text() == "mine"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"nothing was made: .*No such file or directory"):
        make_project("acme-queue", "source", tmp_path / "none")


def test_nothing_is_left_of_a_project_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = "a" * 300
    broken = {**new_project.files.SOURCE, endless: ""}
    monkeypatch.setattr(new_project.files, "SOURCE", broken)
    with pytest.raises(ProjectError, match="File name too long"):
        make_project("acme-queue", "source", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("My Queue", "'My Queue' is not one of lower case letters.*, such as my-queue"),
        ("acme_queue", ", such as acme-queue"),
        ("acme--queue", ", such as acme-queue"),
        ("1queue", ", such as queue"),
        ("", "the name '' is not one of"),
        ("../queue", ", such as queue"),
        ("schlange-\u00e4", "is not one of lower case letters"),
        ("a" * 51, "the name has 51 characters, expected 50 at most"),
        ("class", "class is a word of Python .*, such as class-connector"),
        ("json", "json is a module of Python, .*, such as json-connector"),
        ("pytest", "the package pytest is installed, and the project would hide it"),
        ("headgate-queue", "names that begin with headgate are Headgate's own"),
    ],
)
def test_a_name_that_will_not_do_is_refused(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=reason):
        make_project(name, "source", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_will_do() -> None:
    assert name_problem("acme-queue2") == ""
    assert name_problem("json-connector") == ""


def test_a_mistyped_kind_is_refused() -> None:
    done = CliRunner().invoke(app, ["connector", "new", "acme-queue", "--kind", "sinc"])
    assert done.exit_code == 2
    assert "'sinc', expected one of source, sink; did you mean sink?" in done.output
