"""The file of a standalone worker's source offsets: read from Java, and read by Java."""

import base64
import os
import stat
import subprocess
from pathlib import Path

import pytest

from headgate_runtime.standalone.offset_file import OffsetFile, OffsetFileError, dumps, loads

OF_JAVA = base64.b64decode(
    "rO0ABXNyABFqYXZhLnV0aWwuSGFzaE1hcAUH2sHDFmDRAwACRgAKbG9hZEZhY3RvckkACXRocmVzaG9sZHhwP0AAAAAAAAx3"
    "CAAAABAAAAADdXIAAltCrPMX+AYIVOACAAB4cAAAAA1bImMiLHsibiI6Mn1ddXEAfgACAAAAB3sicCI6Mn11cQB+AAIAAAAN"
    "WyJjIix7Im4iOjB9XXVxAH4AAgAAAAd7InAiOjB9dXEAfgACAAAADVsiYyIseyJuIjoxfV11cQB+AAIAAAAHeyJwIjoxfXg="
)
"""`new ObjectOutputStream(...).writeObject(map)` of three entries."""
PROGRAM = """
import java.io.*; import java.util.*;
public class Offsets {
  @SuppressWarnings("unchecked")
  public static void main(String[] a) throws Exception {
    Map<byte[], byte[]> map;
    try (ObjectInputStream in = new ObjectInputStream(new FileInputStream(a[0]))) {
      map = (Map<byte[], byte[]>) in.readObject();
    }
    for (var e : map.entrySet())
      System.out.println(new String(e.getKey(), "UTF-8") + "=" +
          (e.getValue() == null ? null : new String(e.getValue(), "UTF-8")));
    map.put("from java".getBytes("UTF-8"), null);
    try (ObjectOutputStream out = new ObjectOutputStream(new FileOutputStream(a[0]))) {
      out.writeObject(map);
    }
  }
}
"""
LARGE = {b'["c",{"n":%d}]' % n: (b'{"p":%d}' % n if n % 5 else None) for n in range(1_000)}


def test_what_java_wrote() -> None:
    found = loads(OF_JAVA)
    assert found == {b'["c",{"n":%d}]' % n: b'{"p":%d}' % n for n in range(3)}
    assert dumps(found) == OF_JAVA


@pytest.mark.parametrize("offsets", [{}, {b"": b""}, {b"k": None}, {b"\xff\x00": b"\x78"}, LARGE])
def test_there_and_back(offsets: dict[bytes, bytes | None]) -> None:
    assert loads(dumps(offsets)) == offsets


def test_an_array_that_is_there_twice_is_a_reference() -> None:
    """Java writes a reference when a connector's offsets share one object."""
    one = dumps({b"k": b"k"})
    shared = one[: one.rindex(b"u")] + b"q\x00\x7e\x00\x03" + b"x"
    assert loads(shared) == {b"k": b"k"}


@pytest.mark.slow
def test_java_reads_what_we_write_and_we_what_it_writes(tmp_path: Path) -> None:
    file, program = OffsetFile(tmp_path / "connect.offsets"), tmp_path / "Offsets.java"
    file.save(LARGE)
    program.write_text(PROGRAM)
    command = ["java", "-Xmx64m", str(program), str(file.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wanted = {f"{key.decode()}={(value or b'null').decode()}" for key, value in LARGE.items()}
    assert set(done.stdout.splitlines()) == wanted
    assert file.load() == {**LARGE, b"from java": None}


@pytest.mark.parametrize(
    "data",
    [
        b"not java",
        OF_JAVA[:-1],
        OF_JAVA[:100],
        OF_JAVA.replace(b"HashMap", b"TreeMap"),
        OF_JAVA.replace(b"[B", b"[C"),
        OF_JAVA.replace(b"q\x00\x7e\x00\x02", b"q\x00\x7e\x07\x02"),
        OF_JAVA.replace(b"\x00\x00\x00\x03ur", b"\xff\xff\xff\xffur"),
    ],
)
def test_another_file_is_refused_and_left(tmp_path: Path, data: bytes) -> None:
    file = OffsetFile(tmp_path / "connect.offsets")
    file.path.write_bytes(data)
    with pytest.raises(OffsetFileError, match=r"connect\.offsets is not a file of source offsets"):
        file.load()
    assert file.path.read_bytes() == data


def test_no_file_and_an_empty_one(tmp_path: Path) -> None:
    file = OffsetFile(tmp_path / "connect.offsets")
    assert file.load() == {}
    file.path.touch()
    assert file.load() == {}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OffsetFile(tmp_path / "connect.offsets")
    file.save({b"a": b"1"})

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        file.save({b"a": b"2"})
    assert file.load() == {b"a": b"1"}
    assert [path.name for path in tmp_path.iterdir()] == ["connect.offsets"]


def test_where_nothing_can_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    OffsetFile(tmp_path / "connect.offsets").check_writable()
    assert list(tmp_path.iterdir()) == []
    for folder, why in (("none", "No such file or directory"), ("a file", "Not a directory")):
        (tmp_path / "a file").touch()
        path = tmp_path / folder / "connect.offsets"
        with pytest.raises(OffsetFileError) as caught:
            OffsetFile(path).check_writable()
        assert str(caught.value) == f"{path} cannot be written: {why}"


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_a_new_file_follows_the_umask_and_an_old_one_keeps_its_mode(
    tmp_path: Path, umask: int
) -> None:
    file = OffsetFile(tmp_path / "connect.offsets")
    before = os.umask(umask)
    try:
        file.save({b"a": b"1"})
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o666 & ~umask
        for mode in (0o600, 0o664):
            file.path.chmod(mode)
            file.save({b"a": b"2"})
            assert stat.S_IMODE(file.path.stat().st_mode) == mode
    finally:
        os.umask(before)
