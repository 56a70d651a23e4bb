"""DirectorySource reads over SFTP, against a server that speaks it."""

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.files.sftp_server import PASSWORD, USER, SftpServer, sftp_server
from support.rest.world import wait_until
from support.task.source_tasks import Offsets, Run, values

from headgate.connector.api import Connector, RetriableError
from headgate.connector.config import ConfigError
from headgate.connector.validation import validate_connector
from headgate_connectors.directory import DirectorySource
from headgate_connectors.directory_sink import DirectorySink
from headgate_runtime.remote import show


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SftpServer]:
    (tmp_path / "in").mkdir()
    with sftp_server(tmp_path) as made:
        yield made


def run(server: SftpServer, offsets: Offsets | None = None, **settings: str) -> Run:
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    config = {
        "path": f"sftp://127.0.0.1:{server.port}/in",
        "topic": "t",
        "file.settle.ms": "0",
        "fs.username": USER,
        "fs.password": PASSWORD,
        **keys,
    }
    return Run(DirectorySource, config, offsets)


def commit_all(subject: Run, offsets: Offsets) -> list[Any]:
    items = subject.rest()
    for item in items:
        offsets.commit(item)
    return values(items)


def test_files_are_read_once_from_any_record(server: SftpServer, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir()
    (folder / "a.jsonl").write_bytes(b"1\n2\n")
    (folder / "deep" / "b.csv.gz").write_bytes(gzip.compress(b"n\n3\n4\n"))
    pq.write_table(pa.table({"n": [5, 6]}), folder / "deep" / "c d%.parquet")
    whole = run(server, batch_size="1").rest()
    assert values(whole) == ["1", "2", '{"n":"3"}', '{"n":"4"}', {"n": 5}, {"n": 6}]
    for stop in (0, 2, 4):
        offsets = Offsets()
        for item in whole[: stop + 1]:
            offsets.commit(item)
        assert values(run(server, offsets).rest()) == values(whole[stop + 1 :])


def test_files_grow_are_replaced_and_linked(server: SftpServer, tmp_path: Path) -> None:
    offsets, file = Offsets(), tmp_path / "in" / "a.jsonl"
    file.write_bytes(b"1\n2\n")
    subject = run(server, offsets)
    assert commit_all(subject, offsets) == ["1", "2"]
    with file.open("ab") as end:
        end.write(b"3\n")
    assert commit_all(subject, offsets) == ["3"]
    file.write_bytes(b"7\n8\n9\n10\n")
    assert commit_all(subject, offsets) == ["7", "8", "9", "10"]
    (tmp_path / "other.jsonl").write_bytes(b"11\n12\n")
    (tmp_path / "in" / "link.jsonl").symlink_to(tmp_path / "other.jsonl")
    (tmp_path / "folder").mkdir()
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "folder")
    (tmp_path / "in" / "nowhere.jsonl").symlink_to(tmp_path / "nothing")
    assert commit_all(subject, offsets) == ["11", "12"]
    assert len(subject.context.quarantined) == 1
    assert "linked is a symbolic link, which is not followed" in subject.context.quarantined[0]


def test_a_connection_that_is_lost_is_made_anew(server: SftpServer, tmp_path: Path) -> None:
    (tmp_path / "in" / "a.jsonl").write_bytes(b"1\n2\n3\n")
    subject = run(server, batch_size="1")
    found: list[Any] = []
    for _ in range(3):
        for _ in range(9):
            try:
                found += values(subject.poll() or [])
                break
            except RetriableError as error:
                assert "cannot be reached" in str(error)
        server.hang_up()
    assert found == ["1", "2", "3"]
    assert subject.context.quarantined == []


def test_a_server_that_is_down_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b"1\n")
    first = SftpServer(tmp_path)
    first.close()
    subject = run(first)
    for _ in range(2):
        with pytest.raises(RetriableError, match="cannot be reached"):
            subject.task.poll()
    again = SftpServer(tmp_path, first.port)
    try:
        assert values(subject.rest()) == ["1"]
        subject.task.stop()
        wait_until(lambda: again.connections == 0)
    finally:
        again.close()


def test_a_refused_password_is_told_and_not_shown(server: SftpServer, tmp_path: Path) -> None:
    wrong = "wrong:secret"
    address = f"sftp://{USER}:{quote(wrong, safe='')}@127.0.0.1:{server.port}/in"
    given: tuple[dict[str, str], ...] = (
        {"fs_password": wrong},
        {"path": address, "fs_password": wrong},
    )
    for more in given:
        with pytest.raises(ConfigError, match=r"refuses the login.*fs\.username") as told:
            run(server, None, **more).poll()
        assert wrong not in str(told.value)
        assert quote(wrong, safe="") not in str(told.value)


def test_a_password_in_the_address_is_not_shown(server: SftpServer, tmp_path: Path) -> None:
    (tmp_path / "in" / "a.jsonl").write_bytes(b"1\n{\n")
    path = f"sftp://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/in"
    config = {"path": path, "topic": "t", "file.settle.ms": "0"}
    subject = Run(DirectorySource, config)
    assert values(subject.rest()) == ["1"]
    (told,) = subject.context.quarantined
    assert told.startswith(f"sftp://{USER}:[hidden]@127.0.0.1:{server.port}/in/a.jsonl at byte 2")


def test_faults_of_a_config_do_not_show_the_password_of_its_address() -> None:
    config = {"connector.class": "DirectorySource", "topic": "t", "path": "sfpt://u:hunter2@h/in"}
    assert "no file system is known for sfpt://" in " ".join(faults(DirectorySource, config))
    sink = {"connector.class": "DirectorySink", "topics": "t", "path": "sftp://u:hunter2@h/out"}
    told = " ".join(faults(DirectorySink, sink))
    assert "sftp://u:[hidden]@h/out is an address" in told
    assert "hunter2" not in told
    differences = show.differences(None, {**config, "fs.key": "hunter2"})
    assert "+ path = sfpt://u:[hidden]@h/in" in differences
    assert "hunter2" not in str(differences)


def faults(connector: type[Connector], config: Mapping[str, str]) -> tuple[str, ...]:
    given = {"name": "c", **config}
    return validate_connector(
        connector, given, worker_settings={}, exactly_once_enabled=False, runner="process"
    ).errors
