"""The files below a directory: of this machine, or of any address that fsspec knows.

A remote file has no inode, so a renamed one is another file. What it is known by, beside its bytes,
is its ETag where the server gives one, its size and its time of change. An error of the network is
an `UnreachableError`, and no fault of a file: the task tries again.
"""

import contextlib
import io
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

from headgate.connector.secret_keys import without_login
from headgate_connectors.files.reader import NotReady
from headgate_connectors.files.server import Server, import_fsspec

OPTION: Final = "fs."
"""Options of an address's file system begin so."""
BUFFER_BYTES: Final = 1 << 18
_FILE: Final = "file://"


@dataclass(frozen=True, slots=True)
class RemoteStat:
    """What `os.stat_result` says of a local file, as far as it is known of a remote one."""

    st_size: int
    st_ino: int
    """Another number for another content where there is an ETag, else always the same."""
    st_mtime_ns: int
    st_ctime_ns: int


Stat: TypeAlias = os.stat_result | RemoteStat


class Entry(Protocol):
    """What `os.DirEntry` has."""

    @property
    def name(self) -> str: ...
    def is_dir(self, *, follow_symlinks: bool = True) -> bool: ...
    def is_file(self) -> bool: ...
    def is_symlink(self) -> bool: ...
    def inode(self) -> int: ...
    def stat(self) -> Stat: ...


class Kind(Enum):
    """What an entry of a folder is."""

    FOLDER = "folder"
    LINK_TO_FOLDER = "link to a folder"
    FILE = "file, or a link to one"
    OTHER = "pipe, socket, device, or a link to none of these"


def kind_of(entry: Entry) -> Kind:
    if entry.is_dir(follow_symlinks=False):
        return Kind.FOLDER
    try:
        if entry.is_file():
            return Kind.FILE
        is_link = entry.is_symlink() and entry.is_dir()
    except PermissionError:
        return Kind.FILE  # whoever looks at it is told why it cannot be read
    except OSError:  # a link to itself, for one
        return Kind.OTHER
    return Kind.LINK_TO_FOLDER if is_link else Kind.OTHER


class RemotePath:
    """A remote file by its address. Pyarrow and our readers open it anew each time."""

    def __init__(self, server: Server, address: str) -> None:
        self._server = server
        self._address = address
        self._shown = without_login(address)

    def open(self, _mode: str = "rb") -> "io.BufferedReader[Any]":
        with self._server.told(self._shown):
            size = _size_of(self._server.info(self._address))
            raw = self._server.open(self._address, size)
        return io.BufferedReader(_Raw(raw, size, self._server, self._shown), BUFFER_BYTES)

    def stat(self) -> RemoteStat:
        return stat_of_info(self.info())

    def info(self) -> Mapping[str, Any]:
        with self._server.told(self._shown):
            return self._server.info(self._address)


FilePath: TypeAlias = Path | RemotePath


def open_with_stat(path: FilePath) -> "tuple[io.BufferedReader[Any], Stat]":
    """An open file, and what it was when it was opened."""
    if isinstance(path, RemotePath):
        stat = path.stat()  # before: what comes later is found when it is read again
        return path.open(), stat
    raw = path.open("rb")
    try:
        return raw, os.fstat(raw.fileno())
    except BaseException:
        raw.close()
        raise


def source(path: FilePath) -> "Path | io.BufferedReader[Any]":
    """What pyarrow reads."""
    return path.open() if isinstance(path, RemotePath) else path


class _Raw(io.RawIOBase):
    """A file of fsspec as the standard library wants it."""

    def __init__(self, raw: BinaryIO, size: int, server: Server, shown: str) -> None:
        self._raw = raw
        self._size = size
        self._server = server
        self._shown = shown

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:  # paramiko takes the end for 0 where its server is gone
            offset, whence = offset + self._size, io.SEEK_SET
        with self._server.told(self._shown):
            self._raw.seek(offset, whence)  # paramiko's answers nothing
            return self._raw.tell()

    def readinto(self, buffer: Any) -> int:
        with self._server.told(self._shown):
            data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(Exception):  # its connection may be gone
                self._raw.close()
        super().close()


# -- trees --


class LocalTree:
    is_remote = False

    def __init__(self, root: Path) -> None:
        self._root = root

    def close(self) -> None: ...

    def scan(self, folder: str) -> list[Entry]:
        """Entries of a folder below the root, by name."""
        return sorted(os.scandir(self._root / folder), key=lambda entry: entry.name)

    def path(self, name: str) -> FilePath:
        return self._root / name


class RemoteTree:
    """
    Raises:
        MissingExtraError: fsspec is not installed.
        ConfigError: the library of the address refuses the options, or the server the login.
    """

    is_remote = True

    def __init__(self, address: str, options: Mapping[str, Any]) -> None:
        self._server = Server(address, options)
        self._root = self._server.root

    def scan(self, folder: str) -> list[Entry]:
        base = self._at(folder)
        with self._server.told(without_login(base)):
            try:
                found = self._server.ls(base)
            except FileNotFoundError:
                if folder:
                    raise
                return []  # an object store has no folder before its first object
        entries: list[Entry] = []
        for info in found:
            address = str(info["name"]).rstrip("/")
            head, _, name = address.rpartition("/")
            if name and "?" not in name and head.strip("/") == base.strip("/"):
                is_dir = info["type"] == "directory" or str(info["name"]).endswith("/")
                entries.append(
                    _RemoteEntry(name, is_dir, info, self.path(self._below(folder, name)))
                )
        return sorted(entries, key=lambda entry: entry.name)

    def close(self) -> None:
        """End a connection that is kept open."""
        self._server.close()

    def path(self, name: str) -> RemotePath:
        return RemotePath(self._server, self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root or "/"

    def _below(self, folder: str, name: str) -> str:
        return f"{folder}/{name}" if folder else name


Tree: TypeAlias = LocalTree | RemoteTree


class _RemoteEntry:
    def __init__(self, name: str, is_dir: bool, info: Mapping[str, Any], path: RemotePath) -> None:
        self._name = name
        self._is_dir = is_dir
        self._info = info
        self._path = path

    @property
    def name(self) -> str:
        return self._name

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        if self.is_symlink() and follow_symlinks:
            return self._target_type() == "directory"
        return self._is_dir

    def is_file(self) -> bool:
        if self.is_symlink():
            return self._target_type() == "file"
        return not self._is_dir

    def is_symlink(self) -> bool:
        return bool(self._info.get("type") == "link")

    def _target_type(self) -> str:
        """Empty: there is no target."""
        try:
            return str(self._path.info()["type"])
        except FileNotFoundError:
            return ""

    def inode(self) -> int:
        return 0

    def stat(self) -> RemoteStat:
        # A listing over HTTP has names alone, and that of a link tells of the link.
        whole = self._info.get("size") is not None and _time_of(self._info)
        whole = whole and not self.is_symlink()
        return stat_of_info(self._info) if whole else self._path.stat()


def stat_of_info(info: Mapping[str, Any]) -> RemoteStat:
    """
    Raises:
        NotReady: the server does not say how long the file is.
    """
    size = _size_of(info)
    etag = next(
        (info[key] for key in ("ETag", "etag", "md5Hash", "content_md5") if info.get(key)), None
    )
    inode = 1 if etag is None else zlib.crc32(str(etag).encode()) + 2
    time = _time_of(info)
    return RemoteStat(size, inode, time, time)


def _size_of(info: Mapping[str, Any]) -> int:
    size = info.get("size")
    if size is None:
        raise NotReady("its server does not say how long it is, so it cannot be read on")
    return int(size)


def _time_of(info: Mapping[str, Any]) -> int:
    """Time of the last change in nanoseconds; 0: it is not known."""
    for key in ("LastModified", "mtime", "last_modified", "Last-Modified", "updated", "created"):
        value = info.get(key)
        if isinstance(value, str):
            try:
                value = parsedate_to_datetime(value)
            except ValueError:
                continue
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return round(aware.timestamp() * 1e6) * 1000
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return round(value * 1e6) * 1000
    return 0


# -- addresses --


def is_remote(path: str) -> bool:
    return "://" in path and not path.startswith(_FILE)


def local_path(path: str) -> str:
    """`path` without ``file://``."""
    return path.removeprefix(_FILE) if path.startswith(_FILE) else path


def open_tree(path: str, directory: str, config: Mapping[str, str]) -> Tree:
    """The tree of a task.

    Args:
        path: as the user gave it.
        directory: as an absolute path, where it is of this machine.
    """
    if is_remote(path):
        return RemoteTree(path, fs_options(config))
    return LocalTree(Path(directory).absolute())


def fs_options(config: Mapping[str, str]) -> dict[str, Any]:
    """Options of the file system: ``fs.key`` is ``key``. What looks like a JSON object, a list,
    true or false is one; all else is text."""
    return {
        key[len(OPTION) :]: _value(text) for key, text in config.items() if key.startswith(OPTION)
    }


def _value(text: str) -> Any:
    if text[:1] in ("{", "[") or text in ("true", "false"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def address_fault(path: str) -> str:
    """What is wrong with an address as `path`; empty if nothing is.

    Raises:
        MissingExtraError: fsspec is not installed.
    """
    if not is_remote(path):
        return ""
    scheme = path.partition("://")[0]
    if "::" in path:
        return f"{path} is a chain of file systems, expected one address"
    fsspec = import_fsspec()
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError:
        known = "s3://, http://, https://, sftp://"
        return f"no file system is known for {scheme}://, expected a folder or {known} and others"
    except ImportError as error:
        return f"{scheme}:// needs another package: {error}"
    return ""
