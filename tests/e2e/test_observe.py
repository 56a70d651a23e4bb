"""`headgate observe` on a broker whose topics hold records as workers write them."""

import json
import os
import pty
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.commands.observing import observe, observed
from support.depth import first
from support.kafka.broker import Found
from support.kafka.cluster import create_topic

from headgate.ids import State, TargetState
from headgate.topics.config_records import Record, encode_connector, encode_target_state
from headgate.topics.status import Status, encode_connector_status
from local_kafka.broker import Broker

pytestmark = pytest.mark.slow

SECONDS = 60
SOURCE = {"connector.class": "FileStreamSource", "file": "in"}
KINDS = ("config", "status", "offset")


def write(address: str, topic: str, *records: Record | tuple[bytes, bytes]) -> None:
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(SECONDS) == 0


def options(address: str, name: str) -> list[str]:
    """Makes the topics of a cluster, too."""
    for kind in KINDS:
        create_topic(address, f"{name}-{kind}")
    named = [f"--{kind}-topic={name}-{kind}" for kind in KINDS]
    return ["--bootstrap-servers", address, "--group", name, *named]


def test_offsets_of_an_own_topic_come_first(kafka_broker: Found, kafka_name: str) -> None:
    """They come first on the same cluster, in whichever order its servers are written. The global
    topic has the offsets that the own topic lacks."""
    address = kafka_broker.address
    at = options(address, kafka_name)
    own, missing = f"{kafka_name}-own", f"{kafka_name}-missing"
    create_topic(address, own)
    same = {"producer.override.bootstrap.servers": f"127.0.0.1:1, {address}"}
    other = {"producer.override.bootstrap.servers": "127.0.0.1:1"}
    configs = {
        "s": {**same, "offsets.storage.topic": own},
        "m": {"offsets.storage.topic": missing},
        "o": {**other, "offsets.storage.topic": own},
        "p": other,
    }
    made = [encode_connector(name, {**SOURCE, **more}) for name, more in configs.items()]
    write(address, f"{kafka_name}-config", *made)
    for name in configs:
        key_a, key_b = b'["%s",{"f":"a"}]' % name.encode(), b'["%s",{"f":"b"}]' % name.encode()
        write(address, f"{kafka_name}-offset", (key_a, b'{"n":1}'), (key_b, b'{"n":5}'))
        write(address, own, (key_a, b'{"n":2}'))

    view = observed(*at)
    found = {
        name: {
            one["partition"]["f"]: one["offset"]["n"] for one in view["connectors"][name]["offsets"]
        }
        for name in configs
    }
    copies = {"a": 1, "b": 5}
    assert found == {"s": {"a": 2, "b": 5}, "m": copies, "o": copies, "p": copies}
    about = [each for each in view["findings"] if "topic" in each]
    assert about == [
        f"there is no topic {missing}, which m names in offsets.storage.topic, or this principal "
        "may not see it",
        f"o keeps its offsets in topic {own} at 127.0.0.1:1: not looked at. Shown are the copies "
        f"in {kafka_name}-offset, which may be older",
    ]


@pytest.mark.parametrize("kind", first(1, KINDS))
def test_a_topic_that_is_not_there_is_named(
    kafka_broker: Found, kafka_name: str, kind: str
) -> None:
    at = options(kafka_broker.address, kafka_name)
    wrong = f"{kafka_name}-typo"
    done = observe(*at, f"--{kind}-topic={wrong}", "--json")
    if kind == "config":
        assert done.returncode == 2
        assert f"there is no topic '{wrong}' at {kafka_broker.address}" in done.stderr
        assert "--config-topic" in done.stderr
    else:
        told = f"there is no topic {wrong}, or this principal may not see it"
        assert told in json.loads(done.stdout)["findings"]


class Following:
    """`headgate observe --follow`, read as it prints."""

    def __init__(self, at: Sequence[str], folder: Path) -> None:
        self._errors = folder / "errors.txt"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headgate_runtime.cli", "observe", *at, "--follow"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        self.printed = ""

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def until(self, words: str) -> str:
        """All that it prints up to the line with these words."""
        deadline, found = time.monotonic() + SECONDS, ""
        while words not in found:
            try:
                found += self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise AssertionError(f"{words!r} is not in:\n{found}") from None
        self.printed += found
        return found

    def rest(self) -> str:
        """Return the output that was not read yet."""
        found = ""
        while not self._lines.empty():
            found += self._lines.get()
        return found

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Exit code and standard error."""
        self.process.send_signal(number)
        code = self.process.wait(30)
        self._reading.join(30)
        return code, self._errors.read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._reading.join(30)


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[[Sequence[str]], Following]]:
    made: list[Following] = []

    def start(at: Sequence[str]) -> Following:
        made.append(Following(at, tmp_path))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.mark.exhaustive
def test_who_follows_sees_what_changes_and_brokers_that_go_and_come(
    own_broker: Callable[..., Broker],
    kafka_name: str,
    follow: Callable[[Sequence[str]], Following],
    tmp_path: Path,
) -> None:
    broker = own_broker()
    new = observe("--bootstrap-servers", broker.address, "--group", kafka_name)
    assert (new.returncode, new.stderr.count("\n")) == (2, 1), new.stderr
    assert "no compacted topic" in new.stderr

    at = options(broker.address, kafka_name)
    configs = f"{kafka_name}-config"
    write(broker.address, configs, encode_connector("s", SOURCE))
    write(
        broker.address,
        f"{kafka_name}-status",
        encode_connector_status("s", Status(State.RUNNING, "w:8083", 7)),
    )
    following = follow(at)
    first = following.until("Look at:")
    assert "statuses up to generation 7" in first
    assert "STARTED" in first
    write(broker.address, configs, encode_target_state("s", TargetState.PAUSED))
    following.until("its target state is PAUSED")

    broker.kill()
    following.until("as it was before: ")
    time.sleep(8)
    assert "group " not in following.rest()  # still the same, though errors differ
    broker.start()
    write(broker.address, configs, encode_target_state("s", TargetState.STOPPED))
    assert (
        "as it was before" not in following.until("its target state is STOPPED").split("group")[-1]
    )
    assert following.end(signal.SIGINT) == (0, "")

    ended = follow(at)
    ended.until("its target state is STOPPED")
    assert ended.end(signal.SIGTERM) == (0, "")
    check_terminal(at)


def check_terminal(at: Sequence[str]) -> None:
    """The view is redrawn in place, and the cursor is restored at the end."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate_runtime.cli", "observe", *at, "--follow"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    shown = b""
    try:
        while b"\x1b[?25l" not in shown or b"Look at" not in shown:
            shown += os.read(master, 65_536)
        process.send_signal(signal.SIGTERM)
        while b"\x1b[?25h" not in shown:
            shown += os.read(master, 65_536)
        assert process.wait(30) == 0
        assert b"Traceback" not in shown
    finally:
        process.kill()
        process.wait(30)
        os.close(master)
