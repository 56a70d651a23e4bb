"""All workers of a machine share one Spark: real JVMs, real kills."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.commands.processes import Process, descendants, processes
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.kafka.broker import Found
from support.kafka.cluster import read_committed
from support.spark.java_gate import JavaGate
from support.spark.lake import SETTINGS, create_lines, running, until

from headgate_runtime.spark.settings import SparkSettings
from headgate_runtime.spark.shared import SharedSpark
from headgate_spark.sessions import Sessions, listens

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

KEEPER = "headgate_runtime.spark.keeper"
WARM_UP = "headgate_spark.warm_up"


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JavaGate:
    """The Java of what the test starts; open."""
    made = JavaGate(tmp_path / "java")
    made.open()
    monkeypatch.setenv("JAVA_HOME", str(made.home))
    return made


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], tuple[SharedSpark, list[str]]]]:
    made: list[SharedSpark] = []

    def start() -> tuple[SharedSpark, list[str]]:
        said: list[str] = []
        spark = SharedSpark(
            tmp_path / "data",
            SparkSettings(master="local[2]"),
            4,
            1.0,
            warn=said.append,
            where="headgate.spark.master",
            host_setting="headgate.spark.host",
        )
        spark.start()
        made.append(spark)
        return spark, said

    yield start
    for spark in made:
        spark.close()


def below(folder: Path, what: str) -> list[Process]:
    """Processes with `what` in their commands: the keeper of the folder, and those below it."""
    found = [one for one in processes() if KEEPER in one.command and str(folder) in one.command]
    found += [one for keeper in found for one in descendants(keeper.pid)]
    return [one for one in found if what in one.command]


def wait(what: str, holds: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


def test_spark_outlives_its_keeper_and_its_first_worker_and_ends_with_the_last(
    make: Callable[[], tuple[SharedSpark, list[str]]], gate: JavaGate, tmp_path: Path
) -> None:
    first, _ = make()
    second, heard = make()
    known = first.worker_settings()
    assert second.worker_settings() == known
    port = int(known["remote"].split(":")[2].partition("/")[0])

    def told(what: str) -> bool:
        second.tick()
        return any(what in line for line in heard)

    wait("Spark", lambda: told("Spark is up at "))
    wait("a first job", lambda: bool(below(tmp_path, WARM_UP)))
    wait("its end", lambda: not below(tmp_path, WARM_UP))
    second.tick()
    assert not any("first job" in line for line in heard), heard
    assert "Traceback" not in (tmp_path / "data" / "spark" / "spark.log").read_text()
    assert below(tmp_path, "headgate_spark.daemon"), "what forks tasks was not started by it"
    sessions = Sessions(known["remote"], shared=True)
    assert sessions.get().range(3).count() == 3
    sessions.close()
    (keeper,) = below(tmp_path, KEEPER)
    os.kill(keeper.pid, signal.SIGKILL)
    heard.clear()
    wait("another keeper", lambda: told("had ended, and is started again"))
    wait("Spark again", lambda: told("Spark is up at "))
    assert second.worker_settings() == known
    sessions = Sessions(known["remote"], shared=True)
    assert sessions.get().range(3).count() == 3
    sessions.close()
    assert gate.asked == 2
    first.close()
    time.sleep(3)  # longer than it waits for another worker
    assert listens("127.0.0.1", port), "it ended with its first worker"
    second.close()
    wait("the end of Spark", lambda: not listens("127.0.0.1", port))
    wait("the end of its keeper", lambda: not below(tmp_path, KEEPER))


def test_a_worker_joins_and_comes_back_to_a_warm_spark_and_survives_the_one_that_began_it(
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    gate: JavaGate,
    tmp_path: Path,
) -> None:
    shared = {**SETTINGS, "headgate.data": str(tmp_path / "data")}
    first = headgate_worker(kafka_broker.address, kafka_name, shared)
    second = headgate_worker(kafka_broker.address, kafka_name, shared)
    lines = [tmp_path / f"{number}.txt" for number in range(2)]
    for number, path in enumerate(lines):
        create_lines(first, f"{kafka_name}-{number}", path, f"{kafka_name}-{number}")

    def all_run(worker: HeadgateWorker) -> bool:
        return all(running(worker, f"{kafka_name}-{number}") for number in range(2))

    def found(number: int) -> list[str]:
        """Return the records of the topic, or nothing while a transaction is open."""
        with suppress(AssertionError):
            records = read_committed(kafka_broker.address, f"{kafka_name}-{number}")
            return [value.decode() for _, value in records]
        return []

    until("the tasks", lambda: all_run(first), first)
    assert gate.asked == 1
    assert "uses the Spark that already runs at sc://localhost:" in second.log.read_text()
    second.kill()
    second.start()
    until("the tasks again", lambda: all_run(second), second)
    assert gate.asked == 1, "a worker that came back began another JVM"
    first.kill()  # and with it all that it has begun: the keeper, and Spark
    until("another keeper", lambda: "is started again" in second.log.read_text(), second)
    until("another JVM", lambda: gate.asked == 2, second)
    for path in lines:
        with path.open("a") as file:
            file.write("two\n")
    for number in range(2):
        until("the new line", lambda n=number: found(n) == ["one", "two"], second)  # type: ignore[misc]
