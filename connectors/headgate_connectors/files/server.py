"""A remote file system of fsspec, with its errors translated.

The file systems of S3 and HTTP reconnect by themselves. One that keeps a single connection, such as
that of SFTP, is created again after an error. Otherwise it would raise the same error forever.
"""

import contextlib
import io
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from headgate.connector.config import ConfigError
from headgate.connector.secret_keys import without_login
from headgate.errors import MissingExtraError
from headgate_connectors.files.reader import NotReady

_SSH: Final = ("sftp", "ssh")
_SSH_SECONDS: Final = {"timeout": 30, "banner_timeout": 30, "auth_timeout": 30}
"""Time limits, in seconds, for making a connection. paramiko by itself has none for ``timeout``."""
ANSWER_S: Final = 60
"""Maximum seconds that an SFTP server may take for an answer."""


class UnreachableError(Exception):
    """A server does not answer, or answers wrongly. Trying again may help."""


class Server:
    """A file system of fsspec. It knows whether the server sends parts of files, as some HTTP
    servers do not."""

    def __init__(self, address: str, options: Mapping[str, Any]) -> None:
        """
        Raises:
            MissingExtraError: fsspec is not installed.
            ConfigError: the file system refuses the options, or its server the login.
        """
        self._fsspec = import_fsspec()
        self.shown = without_login(address)
        self._address, self._options = _with_login_as_options(address, options)
        self._made: Any = None
        self._gives_parts = True
        with contextlib.suppress(UnreachableError), self.told(self.shown):
            self._system()
        scheme = urlsplit(address).scheme
        kind = self._fsspec.get_filesystem_class(scheme)
        self.root = str(kind._strip_protocol(self._address)).rstrip("/")

    def _system(self) -> Any:
        if self._made is None:
            try:
                self._made, _ = self._fsspec.core.url_to_fs(
                    self._address, skip_instance_cache=True, **self._options
                )
            except (TypeError, ValueError, ImportError) as error:
                text = f"{self.shown}: {type(error).__name__}: {error}: check the options fs.*"
                raise ConfigError(text) from error
            self._gives_parts = not _is_http(self._made)
            if _is_sftp(self._made):
                self._made.ftp.get_channel().settimeout(ANSWER_S)
        return self._made

    @contextmanager
    def told(self, shown: str) -> Iterator[None]:
        """Translate errors like the function `told`. After a failure, a file system that keeps one
        connection is closed, so that the next call reconnects."""
        try:
            with told(shown):
                yield
        except UnreachableError:
            if self._made is not None and _keeps_connection(self._made):
                self.close()
            raise

    def ls(self, address: str) -> list[Mapping[str, Any]]:
        self._system().invalidate_cache()
        found: list[Mapping[str, Any]] = self._system().ls(address, detail=True)
        return found

    def info(self, address: str) -> Mapping[str, Any]:
        self._system().invalidate_cache()
        found: Mapping[str, Any] = self._system().info(address)
        return found

    def open(self, address: str, size: int) -> BinaryIO:
        if size == 0:
            return io.BytesIO()
        system = self._system()
        found: BinaryIO = system.open(address, "rb")
        if self._gives_parts or size == 1:
            return found
        try:
            found.seek(size - 1)
            self._gives_parts = len(found.read()) == 1
        except ValueError:
            pass  # the file system says that it cannot seek
        if self._gives_parts:
            found.seek(0)
            return found
        found.close()
        whole: Any = tempfile.TemporaryFile()  # noqa: SIM115 (closed with its reader)
        try:
            system.get_file(address, whole)
            whole.seek(0)
        except BaseException:
            whole.close()
            raise
        return whole  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the connection. The next call makes a new one."""
        system, self._made = self._made, None
        if system is not None and _keeps_connection(system):
            with contextlib.suppress(Exception):  # it may be gone already
                (system.client if _is_sftp(system) else system.ftp).close()


def _with_login_as_options(
    address: str, options: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """Return an SFTP address without its login, and options with the login. fsspec would take the
    login in the address without decoding it, so that %3A would not be a colon."""
    parts = urlsplit(address)
    if parts.scheme not in _SSH:
        return address, options
    given = {"username": parts.username, "password": parts.password}
    login = {key: unquote(text) for key, text in given.items() if text is not None}
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, {**_SSH_SECONDS, **login, **options}


def _is_http(system: Any) -> bool:
    protocol = system.protocol
    return "http" in ((protocol,) if isinstance(protocol, str) else protocol)


def _is_sftp(system: Any) -> bool:
    return _SSH[0] in system.protocol and hasattr(system, "client")


def _keeps_connection(system: Any) -> bool:
    return hasattr(system, "ftp")


@contextmanager
def told(shown: str) -> Iterator[None]:
    """Translate errors of a file system.

    Raises:
        FileNotFoundError, PermissionError: unchanged.
        NotReady: the file was replaced while it was read.
        ConfigError: the server refuses the login.
        UnreachableError: any other error of the file system.
    """
    try:
        yield
    except FileNotFoundError as error:
        if _is_of_network(error.__cause__):
            raise UnreachableError(f"{shown}: {without_login(str(error.__cause__))}") from error
        raise
    except (PermissionError, MissingExtraError, NotReady, ConfigError, UnreachableError):
        raise
    except Exception as error:  # each library has its own exceptions
        if type(error).__name__ == "FileExpired":
            raise NotReady("it was replaced while it was read") from error
        text = f"{type(error).__name__}: {without_login(str(error))}"
        if _is_refused_login(error):
            raise ConfigError(
                f"{shown} refuses the login: {text}; check fs.username, and fs.password or "
                "fs.key_filename"
            ) from error
        raise UnreachableError(f"{shown}: {text}") from error


def _is_of_network(cause: BaseException | None) -> bool:
    """Return whether a file only seems "not found" because its server could not be asked. fsspec
    reports it in that way over HTTP."""
    if not type(cause).__module__.startswith("aiohttp"):
        return isinstance(cause, (ConnectionError, TimeoutError))
    return getattr(cause, "status", None) not in (404, 410)


def _is_refused_login(error: Exception) -> bool:
    """Return whether a server refused the login. paramiko raises the same error if a server hangs
    up or is slow, which is told from the text."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    if "No authentication methods available" in text:
        return True
    return "AuthenticationException" in names and not any(
        word in text for word in ("shut down", "timeout")
    )


def import_fsspec() -> Any:
    """Return the module fsspec. Raises MissingExtraError if it is not installed."""
    try:
        import fsspec
        import fsspec.core
    except ModuleNotFoundError as error:
        raise MissingExtraError("fsspec") from error
    return fsspec
