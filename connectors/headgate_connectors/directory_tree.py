"""The files below a directory: of this machine, or of any address that fsspec knows.

A remote file has no inode, so a renamed one is another file. What it is known by, beside its bytes,
is its ETag where the server gives one, its size and its time of change. An error of the network is
an `UnreachableError`, and no fault of a file: the task tries again.
"""

import io
import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

from headgate.errors import MissingExtraError
from headgate_connectors.directory_reader import NotReady

OPTION: Final = "fs."
"""Options of an address's file system begin so."""
BUFFER_BYTES: Final = 1 << 18
_FILE: Final = "file://"


class UnreachableError(Exception):
    """A server does not answer, or not as it should. Trying again may help."""


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


class RemotePath:
    """A remote file by its address. Pyarrow and our readers open it anew each time."""

    def __init__(self, server: "_Server", address: str) -> None:
        self._server = server
        self._system = server.system
        self._address = address

    def open(self, _mode: str = "rb") -> "io.BufferedReader[Any]":
        with told(self._address):
            self._system.invalidate_cache()
            size = _size_of(self._system.info(self._address))
            raw = self._server.open(self._address, size)
        return io.BufferedReader(_Raw(raw, self._address), BUFFER_BYTES)

    def stat(self) -> RemoteStat:
        with told(self._address):
            self._system.invalidate_cache()
            return stat_of_info(self._system.info(self._address))


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


class _Server:
    """A file system of fsspec, and whether it gives parts of files: some HTTP servers do not."""

    def __init__(self, system: Any) -> None:
        self.system = system
        self._gives_parts = not _is_http(system)

    def open(self, address: str, size: int) -> BinaryIO:
        if size == 0:
            return io.BytesIO()
        found: BinaryIO = self.system.open(address, "rb")
        if self._gives_parts or size == 1:
            return found
        try:
            found.seek(size - 1)
            self._gives_parts = len(found.read()) == 1
        except ValueError:
            pass  # it says so
        if self._gives_parts:
            found.seek(0)
            return found
        found.close()
        whole: Any = tempfile.TemporaryFile()  # noqa: SIM115 (closed with its reader)
        try:
            self.system.get_file(address, whole)
            whole.seek(0)
        except BaseException:
            whole.close()
            raise
        return whole  # type: ignore[no-any-return]


def _is_http(system: Any) -> bool:
    protocol = system.protocol
    return "http" in ((protocol,) if isinstance(protocol, str) else protocol)


class _Raw(io.RawIOBase):
    """A file of fsspec as the standard library wants it."""

    def __init__(self, raw: BinaryIO, address: str) -> None:
        self._raw = raw
        self._address = address

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with told(self._address):
            return self._raw.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        with told(self._address):
            data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


@contextmanager
def told(address: str) -> Iterator[None]:
    """Errors of a file system as ours.

    Raises:
        FileNotFoundError, PermissionError: as they are.
        NotReady: the file was replaced while it was read.
        UnreachableError: anything else that the file system raises.
    """
    try:
        yield
    except FileNotFoundError as error:
        if _is_of_network(error.__cause__):
            raise UnreachableError(f"{address}: {error.__cause__}") from error
        raise
    except (PermissionError, MissingExtraError, NotReady):
        raise
    except Exception as error:  # each library has its own
        if type(error).__name__ == "FileExpired":
            raise NotReady("it was replaced while it was read") from error
        raise UnreachableError(f"{address}: {type(error).__name__}: {error}") from error


def _is_of_network(cause: BaseException | None) -> bool:
    """Whether a file is "not found" as its server could not be asked: fsspec says so over HTTP."""
    if not type(cause).__module__.startswith("aiohttp"):
        return isinstance(cause, (ConnectionError, TimeoutError))
    return getattr(cause, "status", None) not in (404, 410)


# -- trees --


class LocalTree:
    is_remote = False

    def __init__(self, root: Path) -> None:
        self._root = root

    def scan(self, folder: str) -> list[Entry]:
        """Entries of a folder below the root, by name."""
        return sorted(os.scandir(self._root / folder), key=lambda entry: entry.name)

    def path(self, name: str) -> FilePath:
        return self._root / name


class RemoteTree:
    """
    Raises:
        MissingExtraError: fsspec is not installed.
        UnreachableError: the library of the address is not installed, or refuses the options.
    """

    is_remote = True

    def __init__(self, address: str, options: Mapping[str, Any]) -> None:
        fsspec = import_fsspec()
        with told(address):
            system, root = fsspec.core.url_to_fs(address, skip_instance_cache=True, **options)
        self._system, self._server = system, _Server(system)
        self._root: str = root.rstrip("/")

    def scan(self, folder: str) -> list[Entry]:
        base = self._at(folder)
        with told(base):
            self._system.invalidate_cache()
            try:
                found = self._system.ls(base, detail=True)
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
        return self._is_dir

    def is_file(self) -> bool:
        return not self._is_dir

    def is_symlink(self) -> bool:
        return False

    def inode(self) -> int:
        return 0

    def stat(self) -> RemoteStat:
        # A listing over HTTP has names alone.
        whole = self._info.get("size") is not None and _time_of(self._info)
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


def import_fsspec() -> Any:
    """Raises MissingExtraError."""
    try:
        import fsspec
        import fsspec.core
    except ModuleNotFoundError as error:
        raise MissingExtraError("fsspec") from error
    return fsspec
