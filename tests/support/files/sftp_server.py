"""An SFTP server for tests: that of paramiko, over the files of one folder."""

import functools
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paramiko

USER, PASSWORD = "reader", "pass:word/1"


class _Login(paramiko.ServerInterface):
    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_auth_password(self, username: str, password: str) -> int:
        good = (username, password) == (USER, PASSWORD)
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "password"


class _Folder(paramiko.SFTPServerInterface):
    """A folder that clients can only read. The tests write to it directly."""

    def __init__(self, server: paramiko.ServerInterface, root: Path) -> None:
        super().__init__(server)
        self._root = root

    def _at(self, path: str) -> Path:
        return self._root / self.canonicalize(path).lstrip("/")

    def list_folder(self, path: str) -> Any:
        try:
            return [_attributes(one, one.lstat()) for one in self._at(path).iterdir()]
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)

    def stat(self, path: str) -> Any:
        try:
            return _attributes(self._at(path), self._at(path).stat())
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)

    def lstat(self, path: str) -> Any:
        return self.stat(path)

    def open(self, path: str, flags: int, attr: Any) -> Any:
        try:
            file = self._at(path).open("rb")
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)
        handle = paramiko.SFTPHandle(flags)
        handle.readfile = file  # type: ignore[attr-defined]
        return handle


def _attributes(path: Path, stat: os.stat_result) -> paramiko.SFTPAttributes:
    return paramiko.SFTPAttributes.from_stat(stat, path.name)


@functools.cache
def _host_key() -> paramiko.PKey:
    return paramiko.RSAKey.generate(2048)


class SftpServer:
    def __init__(self, root: Path, port: int = 0) -> None:
        self._root = root
        self._key = _host_key()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[paramiko.Transport] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            transport = paramiko.Transport(connection)
            transport.add_server_key(self._key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Folder, self._root)
            try:
                transport.start_server(server=_Login())
            except (paramiko.SSHException, EOFError):
                continue
            self._open.append(transport)

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return sum(one.is_active() for one in self._open)

    def hang_up(self) -> None:
        """Close all connections, as a server does that restarts or has a time limit."""
        for transport in self._open:
            transport.close()

    def close(self) -> None:
        # A thread that is in accept does not notice that its socket is closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()


@contextmanager
def sftp_server(root: Path) -> Iterator[SftpServer]:
    made = SftpServer(root)
    try:
        yield made
    finally:
        made.close()
