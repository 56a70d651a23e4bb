"""``headgate plugins --url`` shows the plugins of a running worker, over gRPC and REST alike."""

import json
from pathlib import Path

import pytest
from support.grpc.worker import grpc_worker
from typer.testing import CliRunner

from headgate_runtime.command.parser import app
from headgate_runtime.remote.over_grpc import GrpcRemote
from headgate_runtime.remote.over_rest import RestRemote
from headgate_runtime.remote.remote import Remote

RUN = CliRunner()
KEYS = ("name", "type", "required", "default_value", "importance", "documentation")


def test_plugins_of_a_worker(tmp_path: Path) -> None:
    with grpc_worker(tmp_path / "state") as served:
        remotes: list[Remote] = [GrpcRemote(served.address), RestRemote(served.rest.url)]
        lists = [sorted(map(json.dumps, remote.plugins())) for remote in remotes]
        assert lists[0] == lists[1]
        types = {each["type"] for each in remotes[0].plugins()}
        assert {"source", "sink", "transformation", "predicate", "converter"} <= types
        keys = [
            [{key: one[key] for key in KEYS} for one in remote.plugin("FileStreamSource")]
            for remote in remotes
        ]
        assert keys[0] == keys[1]
        assert {"file", "topic"} <= {key["name"] for key in keys[0]}
        for remote in remotes:
            remote.close()


@pytest.mark.parametrize("way", ["grpc", "http"])
def test_the_command(tmp_path: Path, way: str) -> None:
    with grpc_worker(tmp_path / "state") as served:
        url = served.rest.url if way == "http" else served.address
        listed = RUN.invoke(app, ["plugins", "--url", url]).output.splitlines()
        assert listed[0].split() == ["CLASS", "TYPE", "VERSION"]
        assert any(line.split()[:2] == ["DirectorySource", "source"] for line in listed)
        shown = RUN.invoke(app, ["plugins", "FileStreamSource", "--url", url]).output.splitlines()
        assert shown[0].split() == ["OPTION", "TYPE", "DEFAULT", "MEANING"]
        assert shown[1].split()[2] == "required"
        plain = RUN.invoke(app, ["plugins", "FileStreamSource", "--url", url, "--json"])
        assert {each["name"] for each in json.loads(plain.output)} >= {"file", "topic"}
        wrong = RUN.invoke(app, ["plugins", "NoSuch", "--url", url])
        assert wrong.exit_code not in (0, None)
        assert "Unknown plugin NoSuch" in wrong.stderr
        next_step = f"next: headgate plugins --url {url.rstrip('/')} lists what this worker has"
        assert next_step in wrong.stderr


def test_the_address_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command that operates a cluster reads it."""
    with grpc_worker(tmp_path / "state") as served:
        monkeypatch.setenv("HEADGATE_URL", served.rest.url)
        listed = RUN.invoke(app, ["plugins"]).output.splitlines()
        assert listed[0].split() == ["CLASS", "TYPE", "VERSION"]
        monkeypatch.setenv("HEADGATE_URL", "http://127.0.0.1:1")
        beside = RUN.invoke(app, ["plugins", "--url", served.address]).output.splitlines()
        assert sorted(beside) == sorted(listed)
        away = RUN.invoke(app, ["plugins"])
        assert away.exit_code == 1
        assert away.stderr.endswith("; headgate plugins --local lists what is installed here\n")
        here = RUN.invoke(app, ["plugins", "--local"])
        one = RUN.invoke(app, ["plugins", "DirectorySource", "--local"])
        both = RUN.invoke(app, ["plugins", "--local", "--url", served.address])
    assert here.exit_code == 0
    assert "SparkFileSink" in here.output
    assert "CLASS" not in here.output
    assert one.exit_code == 0
    assert both.exit_code == 2
    assert "give one of them" in both.stderr
