"""A third party's REST catalog of Iceberg tables over a PostgreSQL, and a proxy to it that can lose
answers."""

import contextlib
import os
import select
import signal
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Final

import pyspark
from support.postgres.server import USER, Postgres

from headgate_spark.guard import Guarded
from local_kafka.jars import class_path, java
from local_kafka.jvm import QUICK, compile_java, free_ports

ROOT: Final = Path(__file__).parents[3]
PINS: Final = ROOT / "requirements" / "iceberg-rest-jars.txt"
NAME: Final = "RestCatalogServer"
START_S: Final = 120.0


class RestCatalog:
    """One server of the catalog, which a test can kill and stop.

    Args:
        folder: for the server's compiled class, its log and the tables.
    """

    def __init__(self, database: Postgres, folder: Path) -> None:
        self._database = database
        self._folder = folder
        (self.port,) = free_ports(1)
        self._process: Guarded | None = None
        self.warehouse = (folder / "warehouse").as_uri()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "RestCatalog":
        """Start the server, and return when it answers."""
        classes = self._folder / "classes"
        if not classes.exists():
            classes.mkdir(parents=True)
            compile_java(ROOT / "tests" / "java" / f"{NAME}.java", classes, PINS)
        spark = Path(pyspark.__file__).parent / "jars" / "*"
        path = os.pathsep.join((str(classes), class_path(PINS), class_path(), str(spark)))
        arguments = [str(self.port), self._database.url, USER, self.warehouse]
        command = [java(), "-Xmx256m", *QUICK, NAME, *arguments]
        with (self._folder / "rest.log").open("ab") as log:
            environment = {**os.environ, "CLASSPATH": path, "LC_ALL": "C.UTF-8"}
            self._process = Guarded(command, self._folder, log, environment)
        until = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self._folder / "rest.log").read_text()[-2000:])
            time.sleep(0.1)
        return self

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"{self.uri}/v1/config") as answer,
        ):
            return bool(answer.status == 200)
        return False

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None and self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class LosingProxy:
    """A proxy to a port. While it `loses`, the server gets each whole request, and the client gets
    no answer: its connection ends.

    It loses only the answers to requests that have `only` in their first line.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.only: bytes | None = None
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            loses = False
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data or (ready is server and loses):
                        self.lost += loses
                        return
                    if ready is client and self.only is not None:
                        loses = loses or self.only in data.partition(b"\r\n")[0]
                    (server if ready is client else client).sendall(data)
