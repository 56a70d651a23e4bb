"""`headgate standalone` as a process, with a source and a sink of files."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import javaproperties

from headgate_runtime.standalone.offset_file import OffsetFile
from local_kafka.jvm import free_ports

SECONDS = 60
TESTS = str(Path(__file__).resolve().parents[2])
OFFSETS = "offset.storage.file.filename"
WORKER, SOURCE_FILE, SINK_FILE = "worker.properties", "source.properties", "sink.json"
CONNECTORS = (SOURCE_FILE, SINK_FILE)
STRING = "org.apache.kafka.connect.storage.StringConverter"


class Standalone:
    def __init__(self, folder: Path, servers: str, topic: str) -> None:
        self.folder, self.topic = folder, topic
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"
        self.input, self.output = folder / "in.txt", folder / "out.txt"
        self.offsets = OffsetFile(folder / "connect.offsets")
        self.properties = {
            "bootstrap.servers": servers,
            "key.converter": STRING,
            "value.converter": STRING,
            OFFSETS: str(self.offsets.path),
            "offset.flush.interval.ms": "300",
            "listeners": self.url,
            # Known outside, behind a balancer say, and not to the worker itself.
            "rest.advertised.host.name": "worker.example",
            "headgate.task.runner": "process",
        }
        self.source = {
            "name": f"{topic}-source",
            "connector.class": "FileStreamSource",
            "file": str(self.input),
            "topic": topic,
        }
        self.sink = {
            "name": f"{topic}-sink",
            "config": {
                "connector.class": "FileStreamSink",
                "file": str(self.output),
                "topics": topic,
            },
        }
        self.process: subprocess.Popen[str] | None = None

    def start(self, names: Sequence[str] = CONNECTORS) -> "subprocess.Popen[str]":
        """Start the command on its worker file and connector files.

        Args:
            names: connector files to begin with.
        """
        self.write()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headgate_runtime.cli", "standalone", WORKER, *names],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": TESTS},
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.process

    def write(self) -> None:
        """Write the worker's file and the files of its connectors."""
        (self.folder / WORKER).write_text(dumped(self.properties))
        (self.folder / SOURCE_FILE).write_text(dumped(self.source))
        (self.folder / SINK_FILE).write_text(json.dumps(self.sink))

    def stop(self) -> tuple[int, str]:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, said

    def lines(self) -> list[str]:
        return self.output.read_text().splitlines() if self.output.exists() else []


def dumped(properties: Mapping[str, str]) -> str:
    text: str = javaproperties.dumps(properties, timestamp=False)
    return text


def until(what: str, true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            if true():
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)
