"""Jars are fetched once, whole, with the pinned checksums, or not at all.

The repository here is a server of files on this machine. The fetching is done by the real Ivy.
"""

import hashlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from local_kafka import jars

CONTENT = {"one": b"first jar", "two": b"second jar"}


class Repository:
    """A server of ``group/artifact/version/artifact-version.jar`` that keeps the requests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_request(self, code: object = "-", size: object = "-") -> None:
                if self.command == "GET":
                    asked.append(self.path)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), partial(Handler, directory=str(folder))
        )
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def put(self, name: str, content: bytes) -> None:
        path = self.folder / "org" / "example" / name / "1.0" / f"{name}-1.0.jar"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    for name, content in CONTENT.items():
        made.put(name, content)
    monkeypatch.setenv(jars.REPOSITORY, made.address)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield made
    made.close()


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    path = tmp_path / "some-jars.txt"
    lines = [
        f"org.example:{name}:1.0 sha256:{hashlib.sha256(content).hexdigest()}"
        for name, content in CONTENT.items()
    ]
    path.write_text("\n".join(["# a comment", *lines, ""]))
    return path


def test_they_are_fetched_once(repository: Repository, pins: Path) -> None:
    here = jars.ensure(pins)
    assert {path.name: path.read_bytes() for path in here.iterdir()} == {
        "one-1.0.jar": b"first jar",
        "two-1.0.jar": b"second jar",
    }
    assert jars.class_path(pins) == f"{here}/one-1.0.jar:{here}/two-1.0.jar"
    asked = len(repository.asked)
    assert asked == 2
    assert jars.ensure(pins) == here and len(repository.asked) == asked
    assert [path.name for path in here.parent.iterdir()] == [here.name]


def test_another_list_has_another_folder(pins: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / pins.name
    other.parent.mkdir()
    shutil.copy(pins, other)
    assert jars.folder(other) == jars.folder(pins)
    other.write_text(other.read_text().replace("1.0", "1.1"))
    assert jars.folder(other) != jars.folder(pins)


def test_a_jar_with_another_checksum_is_refused(repository: Repository, pins: Path) -> None:
    repository.put("two", b"not what was pinned")
    with pytest.raises(jars.JarsError, match=r"org\.example:two:1\.0 has sha256 .* expected"):
        jars.ensure(pins)
    assert not jars.folder(pins).exists()
    repository.put("two", CONTENT["two"])
    assert jars.ensure(pins).is_dir()


def test_a_repository_without_them_is_named_and_leaves_nothing(
    repository: Repository, pins: Path
) -> None:
    shutil.rmtree(repository.folder / "org" / "example" / "two")
    with pytest.raises(jars.JarsError) as raised:
        jars.ensure(pins)
    said = str(raised.value)
    assert repository.address in said and "org.example#two;1.0: not found" in said
    assert jars.REPOSITORY in said
    assert not any(jars.folder(pins).parent.iterdir())


def test_a_folder_that_lost_a_jar_is_filled_again(repository: Repository, pins: Path) -> None:
    here = jars.ensure(pins)
    (here / "one-1.0.jar").unlink()
    assert jars.ensure(pins) == here
    assert (here / "one-1.0.jar").read_bytes() == b"first jar"


def test_setup_finds_a_damaged_jar(
    repository: Repository, pins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (jars.ensure(pins) / "one-1.0.jar").write_bytes(b"damaged")
    assert jars.main([pins]) == 0
    assert "one:1.0 has sha256" in capsys.readouterr().out
    assert (jars.folder(pins) / "one-1.0.jar").read_bytes() == b"first jar"


def test_setup_says_what_is_wrong(
    repository: Repository, pins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.put("one", b"not what was pinned")
    assert jars.main([pins]) == 1
    assert "setup: org.example:one:1.0 has sha256" in capsys.readouterr().err


def test_two_processes_at_once_both_have_all_of_them(repository: Repository, pins: Path) -> None:
    code = (
        f"from pathlib import Path; from local_kafka import jars; jars.ensure(Path({str(pins)!r}))"
    )
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    here = jars.folder(pins)
    jars.check(jars.pinned(pins), here)
    assert [path.name for path in here.parent.iterdir()] == [here.name]


@pytest.mark.parametrize("line", ["org.example:one:1.0", "one sha256:00", "org.example:one:1.0 00"])
def test_a_line_that_is_no_pin_is_named(pins: Path, line: str) -> None:
    pins.write_text(f"# a comment\n{line}\n")
    with pytest.raises(jars.JarsError, match=r"some-jars\.txt:2: not 'group:artifact:version"):
        jars.pinned(pins)


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(jars.JarsError, match=r"no program java in JAVA_HOME.* apt-get install"):
        jars.java()


def test_what_is_pinned_is_one_version_of_kafka_and_each_jar_once() -> None:
    pinned = jars.pinned(jars.KAFKA)
    kafka = {jar.version for jar in pinned if jar.group == "org.apache.kafka"}
    assert len(kafka) == 1
    names = [(jar.group, jar.artifact) for jar in pinned]
    assert len(set(names)) == len(names)
    assert len({jar.name for jar in pinned}) == len(names)
