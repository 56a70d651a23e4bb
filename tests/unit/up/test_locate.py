"""A command finds its cluster also where the `headgate up` there cannot be asked."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.errors import MissingExtraError
from headgate_embedded import hold_folder
from headgate_runtime.command.parser import app
from headgate_runtime.remote import locate
from headgate_runtime.remote.locate import open_remote
from headgate_runtime.remote.remote import RemoteError

PIPELINE = """
[cluster]
data = "state"
runner = "process"
[connectors.in]
"connector.class" = "FileStreamSource"
file = "in.txt"
topic = "t"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADGATE_URL", raising=False)
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "in.txt").touch()
    return tmp_path


@pytest.mark.parametrize("grpc", [True, False])
@pytest.mark.parametrize("command", [["status"], ["apply", "pipeline.toml"]])
def test_an_up_that_cannot_be_asked_is_not_said_to_be_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], grpc: bool
) -> None:
    """`pip install headgate` has no gRPC, and its `headgate up` makes no socket."""
    monkeypatch.setattr(locate, "_has_grpc", lambda: grpc)
    with hold_folder(folder / "state"):
        done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert f"headgate up runs on {folder}/state, but" in done.stderr
    words = (
        "has no grpc.sock" if grpc else 'this needs headgate[grpc]: pip install "headgate[grpc]"'
    )
    assert words in done.stderr
    done = CliRunner().invoke(app, command)
    assert "no headgate up runs" in done.stderr


def test_in_its_data_folder_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hold_folder(folder / "state"):
        monkeypatch.chdir(folder / "state")
        with pytest.raises(RemoteError, match=f"headgate up runs on {folder}/state, but"):
            open_remote(None)


@pytest.mark.parametrize(
    ("address", "hidden", "extra"),
    [
        ("http://127.0.0.1:9", "headgate_runtime.remote.over_rest", "rest"),
        ("grpc://127.0.0.1:9", "headgate_runtime.remote.over_grpc", "grpc"),
    ],
)
def test_an_extra_that_is_not_installed_is_told_as_everywhere(
    monkeypatch: pytest.MonkeyPatch, address: str, hidden: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(MissingExtraError) as told:
        open_remote(address)
    assert told.value.extra == extra
