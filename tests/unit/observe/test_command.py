"""`headgate observe` accepts some texts as a cluster, and explains why it refuses others."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate_runtime.command.parser import app


def told(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["observe", *arguments], prog_name="headgate")
    assert done.exit_code == 2, done.output
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("option", [(), ("--properties",)])
def test_a_file_of_a_worker_is_read(tmp_path: Path, option: tuple[str, ...]) -> None:
    """The group is in it, and what is missing is named."""
    file = tmp_path / "worker.properties"
    file.write_text("group.id=g\n")
    said = told(*option, str(file))
    assert "which cluster? Expected --bootstrap-servers, or the file of a worker" in said


def test_it_takes_one_file(tmp_path: Path) -> None:
    file = tmp_path / "worker.properties"
    file.write_text("group.id=g\n")
    assert "two files of a worker are given" in told(str(file), "--properties", str(file))


def test_a_pipeline_is_none(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text("[cluster]\n")
    said = told(str(file))
    assert "pipeline.toml is a file of headgate up" in said
    assert "headgate status" in said


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "nowhere.properties" in told(str(tmp_path / "nowhere.properties"))


def test_nothing_is_told_what_to_give() -> None:
    assert "headgate observe worker.properties" in told()
