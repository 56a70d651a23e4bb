"""A PostgreSQL server for one test, from the package of the operating system."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

USER = "postgres"


class Postgres:
    """A server on 127.0.0.1 with data of its own. It accepts any password, except from a user of
    `add_user`."""

    def __init__(self) -> None:
        # Not in a test's folder, which only the user of the tests may enter.
        self._folder = Path(tempfile.mkdtemp(prefix="headgate-postgres-"))
        self._data = self._folder / "data"
        self._bin = _programs()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def address(self, user: str = USER, database: str = "postgres") -> str:
        """Return the SQLAlchemy URL of the server, without a password."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> "Postgres":
        if os.getuid() == 0:  # the server refuses to run as root
            shutil.chown(self._folder, USER)
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "--no-sync")
        self.resume()
        return self

    def resume(self) -> None:
        """Start the server on its present data."""
        command = [
            *(str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port)),
            *("-h", "127.0.0.1", "-k", str(self._folder), "-F"),
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, user=_user())
        deadline = time.monotonic() + 60
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError((self._folder / "log").read_text()[-2000:])
            time.sleep(0.1)

    def halt(self) -> None:
        """End the server, which disconnects its clients. The data stay."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)
            self._process = None

    def add_user(self, name: str, password: str) -> None:
        """Add a user who needs this password and may create tables."""
        self.sql(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{password}'")
        rules = self._data / "pg_hba.conf"
        rule = f"host all {name} 127.0.0.1/32 scram-sha-256\n"
        rules.write_text(rule + rules.read_text())
        self.sql("SELECT pg_reload_conf()")

    def stop(self) -> None:
        self.halt()
        shutil.rmtree(self._folder, ignore_errors=True)

    def sql(self, text: str) -> str:
        """Run a statement, and return what psql prints."""
        done = subprocess.run(
            [
                *(self._bin / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER),
                *("-v", "ON_ERROR_STOP=1", "-qAt", "-c", text),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def _answers(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        try:
            return self.sql("SELECT 1").strip() == "1"
        except subprocess.CalledProcessError:
            return False

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, user=_user())


def _user() -> str | None:
    return USER if os.getuid() == 0 else None


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path))
    if not found:
        raise RuntimeError(
            "no initdb: install PostgreSQL (Debian, Ubuntu: apt-get install postgresql)"
        )
    return found[0].parent
