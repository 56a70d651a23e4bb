"""DirectorySource reads from S3 and HTTP, against servers that speak them, faulty ones included."""

import functools
import gzip
import http.server
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from moto.server import ThreadedMotoServer
from support.task.source_tasks import Offsets, Run, values

from headgate.connector.api import RetriableError
from headgate.connector.batches import SourceBatch
from headgate.errors import MissingExtraError
from headgate_connectors.directory import DirectorySource
from headgate_connectors.files import file_tree
from headgate_connectors.files.server import told
from headgate_connectors.formats.parquet_file import ParquetReader
from headgate_connectors.formats.readers import LineReader

s3_more = pytest.mark.exhaustive
"""Each client of S3 takes a second or more to begin."""


def run(path: str, offsets: Offsets | None = None, **settings: str) -> Run:
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    config = {"path": path, "topic": "t", "file.settle.ms": "0", **keys}
    return Run(DirectorySource, config, offsets)


class Bucket:
    """A bucket of its own on an S3 server."""

    def __init__(self, endpoint: str, name: str) -> None:
        options = {"key": "key", "secret": "secret", "endpoint_url": endpoint}
        self.settings = {f"fs.{key}": text for key, text in options.items()}
        self.system: Any = fsspec.filesystem("s3", skip_instance_cache=True, **options)
        self.path = f"s3://{name}"
        self.system.mkdir(name)

    def put(self, name: str, data: bytes) -> None:
        self.system.pipe(f"{self.path}/{name}", data)

    def run(self, offsets: Offsets | None = None, below: str = "in", **settings: str) -> Run:
        keys = {key.replace("_", "."): value for key, value in settings.items()}
        config = {"path": f"{self.path}/{below}", "topic": "t", "file.settle.ms": "0"}
        return Run(DirectorySource, {**config, **self.settings, **keys}, offsets)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, request: pytest.FixtureRequest) -> Bucket:
    name = request.node.name.replace("_", "-").lower()[:60].strip("-[]").replace("[", "-")
    return Bucket(endpoint, name)


def commit_all(subject: Run, offsets: Offsets) -> list[Any]:
    items = subject.rest()
    for item in items:
        offsets.commit(item)
    return values(items)


@pytest.mark.slow
def test_files_of_a_bucket_are_read_once_from_any_record(bucket: Bucket) -> None:
    table = pa.table({"n": [5, 6]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    bucket.put("in/a.jsonl", b"1\n2\n")
    bucket.put("in/deep/b.csv.gz", gzip.compress(b"n\n3\n4\n"))
    bucket.put("in/deep/c d%.parquet", sink.getvalue().to_pybytes())
    bucket.put("in/deep/_left/e.jsonl", b"9\n")
    bucket.put("inner/x.jsonl", b"9\n")
    whole = bucket.run(batch_size="1").rest()
    assert values(whole) == ["1", "2", '{"n":"3"}', '{"n":"4"}', {"n": 5}, {"n": 6}]
    assert whole[4].source_partition == {"file": "deep/c d%.parquet"}
    for stop in (0, 2, 4):
        offsets = Offsets()
        for item in whole[: stop + 1]:
            offsets.commit(item)
        assert values(bucket.run(offsets).rest()) == values(whole[stop + 1 :])


@s3_more
def test_objects_that_come_later_are_read_and_none_twice(bucket: Bucket) -> None:
    offsets = Offsets()
    subject = bucket.run(offsets, below="not/there/yet")
    assert subject.rest() == []
    for number in range(3):
        bucket.put(f"not/there/yet/{number}.jsonl", b"%d\n" % number)
        assert commit_all(subject, offsets) == [str(number)]
    assert bucket.run(offsets, below="not/there/yet").rest() == []


@s3_more
def test_an_object_that_is_replaced_is_read_from_its_beginning(bucket: Bucket) -> None:
    offsets = Offsets()
    bucket.put("in/a.jsonl", b"1\n2\n")
    assert commit_all(bucket.run(offsets), offsets) == ["1", "2"]
    bucket.put("in/a.jsonl", b"1\n2\n3\n")  # with the same beginning: it goes on
    assert commit_all(bucket.run(offsets), offsets) == ["3"]
    bucket.put("in/a.jsonl", b"7\n8\n9\n")
    assert commit_all(bucket.run(offsets), offsets) == ["7", "8", "9"]


@s3_more
def test_an_object_replaced_while_it_is_read_gives_no_mixture(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two requests of a task, another object may get the name."""
    old = b"".join(b'"old %d"\n' % n for n in range(50))
    new = b"".join(b'"new %d"\n' % n for n in range(60))
    bucket.put("in/a.jsonl", old)
    offsets = Offsets()
    subject = bucket.run(offsets, batch_size="20")
    real, left = file_tree.RemotePath.stat, [2]

    def stat(path: file_tree.RemotePath) -> file_tree.RemoteStat:
        left[0] -= 1
        if left[0] == 0:
            bucket.put("in/a.jsonl", new)
        return real(path)

    monkeypatch.setattr(file_tree.RemotePath, "stat", stat)
    found = commit_all(subject, offsets)
    while more := commit_all(subject, offsets):
        found += more
    kinds = [text.split()[0].strip('"') for text in found]
    assert kinds == ["old"] * kinds.count("old") + ["new"] * 60
    assert left[0] < 0


@s3_more
def test_a_bad_object_is_set_aside_and_tried_again_when_it_changes(bucket: Bucket) -> None:
    bucket.put("in/a.jsonl", b"1\n{\n")
    subject = bucket.run()
    assert values(subject.rest()) == ["1"]
    assert subject.context.quarantined[0].startswith(
        f"{bucket.path}/in/a.jsonl at byte 2: not JSON"
    )
    bucket.put("in/a.jsonl", b"1\n2\n")
    assert values(subject.rest()) == ["2"]
    assert subject.context.quarantined == []


@s3_more
def test_a_server_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    """Nothing is set aside, nothing is lost, and what was read before is given."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    bucket = Bucket(f"http://{host}:{port}", "lost")
    bucket.settings["fs.config_kwargs"] = '{"retries": {"max_attempts": 0}, "connect_timeout": 1}'
    bucket.put("in/a.jsonl", b"1\n2\n3\n")
    subject = bucket.run(batch_size="2")
    assert values(subject.task.poll() or []) == ["1", "2"]
    server.stop()
    with pytest.raises(RetriableError, match=r"s3://lost|lost/in.*cannot be reached|tried again"):
        for _ in range(5):
            subject.task.poll()
    assert subject.context.quarantined == []


@s3_more
def test_a_corrupt_network_is_no_corrupt_file(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow reads through us: an error of the server must not cost the rows of a row group."""
    sink = pa.BufferOutputStream()
    texts = [secrets.token_hex(2_000) for _ in range(1000)]
    pq.write_table(pa.table({"n": list(range(1000)), "t": texts}), sink, row_group_size=100)
    bucket.put("in/a.parquet", sink.getvalue().to_pybytes())
    offsets = Offsets()
    subject = bucket.run(offsets, errors_tolerance="all", batch_size="100")
    found = values(subject.task.poll() or [])
    real, fails = file_tree._Raw.readinto, [True]

    def readinto(raw: file_tree._Raw, buffer: Any) -> int:
        if fails[0]:
            with told("s3://x"):
                raise ConnectionResetError("reset by peer")
        return real(raw, buffer)

    monkeypatch.setattr(file_tree._Raw, "readinto", readinto)
    with pytest.raises(RetriableError, match="reset by peer"):
        subject.task.poll()
    fails[0] = False
    found += values(subject.rest())
    assert [row["n"] for row in found] == list(range(1000))


# -- HTTP --


class WithRanges(http.server.SimpleHTTPRequestHandler):
    """Gives parts of files, as most servers do; Python's own does not."""

    asked: ClassVar[list[str]] = []

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        path, asked = Path(self.translate_path(self.path)), self.headers.get("Range")
        if asked is None or not path.is_file():
            super().do_GET()
            return
        self.asked.append(asked)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        data = path.read_bytes()
        part = data[int(first) : int(last) + 1 if last else len(data)]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(part)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(params=[WithRanges, Quiet])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Path, str]]:
    handler: Callable[..., Any] = functools.partial(request.param, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield tmp_path, f"http://127.0.0.1:{server.server_address[1]}/in"
        server.shutdown()


def test_files_of_a_web_server_are_read_on_as_they_grow(site: tuple[Path, str]) -> None:
    folder, path = site[0] / "in" / "deep", site[1]
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text("".join(f"{n}\n" for n in range(1000)))
    (folder / "empty.jsonl").touch()
    pq.write_table(pa.table({"n": [5]}), folder.parent / "b.parquet")
    offsets = Offsets()
    found = commit_all(run(path, offsets, batch_size="300"), offsets)
    assert sorted(map(str, found)) == sorted([*map(str, range(1000)), "{'n': 5}"])
    with (folder / "a.jsonl").open("a") as file:
        file.write("1000\n")
    assert commit_all(run(path, offsets), offsets) == ["1000"]
    assert run(path, offsets).rest() == []


def test_a_web_server_that_is_gone_takes_no_file_with_it(tmp_path: Path) -> None:
    """fsspec says that a file is not found where its server is not."""
    (tmp_path / "a.jsonl").write_text("1\n2\n")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        subject = run(f"http://127.0.0.1:{server.server_address[1]}/", batch_size="1")
        assert values(subject.task.poll() or []) == ["1"]
        server.shutdown()
    with pytest.raises(RetriableError, match="cannot be reached"):
        for _ in range(3):
            subject.task.poll()
    assert subject.context.quarantined == []


class WithoutLength(Quiet):
    """Does not say how long files of CSV are."""

    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Content-Length" or not self.path.endswith(".csv"):
            super().send_header(keyword, value)


def test_a_file_whose_length_is_not_said_costs_itself_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / "b.jsonl").write_text("2\n")
    handler = functools.partial(WithoutLength, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        subject = run(f"http://127.0.0.1:{server.server_address[1]}/")
        assert values(subject.rest()) == ["2"]
        server.shutdown()
    (told,) = subject.context.quarantined
    assert told.endswith("/a.csv: its server does not say how long it is, so it cannot be read on")


def test_a_batch_of_a_file_that_is_replaced_while_it_is_read_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contents: list[bytes] = []
    for first in (0, 100):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"n": range(first, first + 6)}), sink, row_group_size=3)
        contents.append(sink.getvalue().to_pybytes())
    system = fsspec.filesystem("memory")
    system.pipe("/batches/a.parquet", contents[0])
    subject = run("memory://batches")
    subject.context.takes_batches = True
    subject.task.start(subject.config)
    real = ParquetReader.read_batch

    def read_batch(reader: ParquetReader, limit: int) -> Any:
        found = real(reader, limit)
        system.pipe("/batches/a.parquet", contents[1])
        return found

    monkeypatch.setattr(ParquetReader, "read_batch", read_batch)
    items = subject.rest()
    system.rm("/batches", recursive=True)
    found = [n for item in items if isinstance(item, SourceBatch) for n in item.values["n"]]
    assert [n.as_py() for n in found] == list(range(100, 106))


class Listing(MemoryFileSystem):  # type: ignore[misc]
    """Answers from its last listing, as file systems of object stores do."""

    protocol = "listing"
    cachable = False
    _seen: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("listing://").strip("/")

    def info(self, path: str, **more: Any) -> Any:
        return self._seen.get(path) or self._seen.setdefault(path, super().info(path, **more))

    def invalidate_cache(self, path: str | None = None) -> None:
        self._seen.clear()


def test_what_a_file_is_now_is_not_taken_from_a_listing() -> None:
    fsspec.register_implementation("listing", Listing, clobber=True)
    tree = file_tree.RemoteTree("listing://seen", {})
    system = Listing()
    system.pipe("/seen/a.jsonl", b"1\n")
    path = tree.path("a.jsonl")
    assert path.stat().st_size == 2
    system.pipe("/seen/a.jsonl", b"1\n2\n")
    assert path.stat().st_size == 4
    system.pipe("/seen/a.jsonl", b"")
    assert path.stat().st_size == 0
    system.pipe("/seen/a.jsonl", b"1\n2\n")
    with path.open() as file:
        assert file.read() == b"1\n2\n"
    system.rm("/seen/a.jsonl")


def test_a_content_has_a_number_that_no_listing_and_no_other_file_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0 is the inode of everything in a listing, and 1 that of files without an ETag."""
    size = {"size": 1}
    assert file_tree.stat_of_info(size).st_ino == 1
    for crc in (0, 1):
        monkeypatch.setattr(file_tree.zlib, "crc32", lambda _data, crc=crc: crc)
        assert file_tree.stat_of_info({**size, "ETag": "x"}).st_ino not in (0, 1)


# -- other addresses, and settings --


def test_a_file_replaced_while_it_is_read_gives_no_mixture_with_a_half_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last row that was read is none: a line without its end."""
    old, new = b'"old 1"\n"old 2"\n"ol', b'"new 1"\n"new 2"\n"new 3"\n'
    system = fsspec.filesystem("memory")
    system.pipe("/half/a.jsonl", old)
    subject = run("memory://half")

    real_read, real_stat, left = LineReader.read, file_tree.RemotePath.stat, [2]

    def stat(path: file_tree.RemotePath) -> file_tree.RemoteStat:
        left[0] -= 1
        if left[0] == 0:
            system.pipe("/half/a.jsonl", new)
        return real_stat(path)

    monkeypatch.setattr(
        LineReader, "read", lambda reader, limit, _: real_read(reader, limit, settled=True)
    )
    monkeypatch.setattr(file_tree.RemotePath, "stat", stat)
    found = values(subject.rest())
    system.rm("/half", recursive=True)
    assert found == ['"new 1"', '"new 2"', '"new 3"']


def test_file_addresses_are_paths_and_memory_is_an_address(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    assert values(run(f"file://{tmp_path}").rest()) == ["1"]
    system = fsspec.filesystem("memory")
    system.pipe("/dir/a.jsonl", b"2\n")
    assert values(run("memory://dir").rest()) == ["2"]
    system.rm("/dir", recursive=True)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("nosuch://x/y", "no file system is known for nosuch://"),
        ("simplecache::s3://x", "is a chain of file systems"),
        ("gs://x/y", "gs:// needs another package"),
    ],
)
def test_addresses_that_are_refused(path: str, expected: str) -> None:
    faults = DirectorySource.validate({"path": path, "topic": "t"})
    assert expected in faults["path"][0]


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r'pip install "headgate\[fsspec\]"'):
        DirectorySource.validate({"path": "s3://x/y", "topic": "t"})


def test_options_are_text_but_for_objects_and_switches() -> None:
    config = {"fs.key": "0123", "fs.anon": "false", "fs.client_kwargs": '{"a": 1}', "path": "x"}
    assert file_tree.fs_options(config) == {
        "key": "0123",
        "anon": False,
        "client_kwargs": {"a": 1},
    }
    assert json.dumps(file_tree.fs_options({"fs.secret": "{x"})) == '{"secret": "{x"}'
