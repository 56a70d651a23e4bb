"""A worker's side of a shared Spark: the messages between worker and keeper. The keeper is a thread
here, and what it starts is no Spark."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.spark.starting import LISTENS_WHEN_TOLD, until

from headgate_runtime.command.errors import UpError
from headgate_runtime.spark import shared
from headgate_runtime.spark.keeper import Keeper
from headgate_runtime.spark.places import FAILED, GIVEN_UP, Place, Places, State
from headgate_runtime.spark.service import SparkService
from headgate_runtime.spark.settings import SparkSettings
from headgate_runtime.spark.shared import SharedSpark, default_folder
from headgate_spark.server import SparkServer

Make = Callable[..., tuple[SharedSpark, list[str]]]


class Threads:
    """Keepers as threads, and how to end them."""

    def __init__(self) -> None:
        self.stops: list[threading.Event] = []
        self.threads: list[threading.Thread] = []

    def spawn(self, spark: SharedSpark, place: Place, lock: int) -> None:
        own, stop = os.dup(lock), threading.Event()
        places = Places(spark._folder, lambda _place, _lock: None)

        def run() -> None:
            try:
                Keeper(places, place, stop).run()
            finally:
                os.close(own)

        self.stops.append(stop)
        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def end(self) -> None:
        for stop in self.stops:
            stop.set()
        for thread in self.threads:
            thread.join(20)


@pytest.fixture
def keepers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Threads]:
    threads = Threads()

    def command(server: SparkServer) -> list[str]:
        return [sys.executable, "-c", LISTENS_WHEN_TOLD, str(tmp_path / "go"), str(server.port)]

    monkeypatch.setattr("headgate_runtime.spark.keeper.LOOK_S", 0.02)
    monkeypatch.setattr(SharedSpark, "_spawn", lambda *given: threads.spawn(*given))
    monkeypatch.setattr(SparkServer, "_command", command)
    monkeypatch.setattr(SparkService, "_warm_up", lambda _self, _server: None)
    yield threads
    threads.end()


@pytest.fixture
def make(tmp_path: Path, keepers: Threads) -> Iterator[Make]:
    made: list[SharedSpark] = []

    def start(
        slots: int = 2, idle_s: float = 0.0, folder: Path | None = None, **settings: object
    ) -> tuple[SharedSpark, list[str]]:
        said: list[str] = []
        spark = SharedSpark(
            folder or tmp_path / "data",
            SparkSettings(**{"master": "local[1]", **settings}),  # type: ignore[arg-type]
            slots,
            idle_s,
            warn=said.append,
            where="file: headgate.spark.master",
            host_setting="headgate.spark.host",
        )
        spark.start()
        made.append(spark)
        return spark, said

    yield start
    for spark in made:
        spark.close()


def test_two_workers_use_one_spark_and_are_told(make: Make, tmp_path: Path) -> None:
    first, said = make()
    second, heard = make()
    assert first.worker_settings() == second.worker_settings()
    assert first.worker_settings()["remote"].startswith("sc://localhost:")
    assert "token=..." in heard[0] and heard[0].startswith(
        "this worker uses the Spark that already runs at sc://"
    )
    assert str(tmp_path / "data" / "spark" / "spark.log") in heard[0]
    (tmp_path / "go").touch()

    def up() -> bool:
        first.tick()
        second.tick()
        return all(any("Spark is up" in line for line in lines) for lines in (said, heard))

    until(up)
    assert any(line.startswith("starting Spark (local[16])") for line in said)
    assert not any("starting Spark" in line for line in heard)


def test_spark_outlives_the_worker_that_started_it(
    make: Make, keepers: Threads, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    first, said = make()

    def up() -> bool:
        first.tick()
        return any("Spark is up" in line for line in said)

    until(up)
    second, _ = make()
    first.close()
    with pytest.raises(AssertionError):
        until_ended(keepers, 0.5)
    second.close()
    until_ended(keepers, 20)


def test_a_worker_that_is_started_again_begins_no_second_spark(
    make: Make, keepers: Threads, tmp_path: Path
) -> None:
    """The worker is ready at once, because neither a JVM nor a keeper starts."""
    (tmp_path / "go").touch()
    first, said = make(idle_s=60.0)

    def up() -> bool:
        first.tick()
        return any("Spark is up" in line for line in said)

    until(up)
    address = first.worker_settings()["remote"]
    first.close()
    with pytest.raises(AssertionError):
        until_ended(keepers, 0.5)
    again, heard = make(idle_s=60.0)
    again.tick()
    assert again.worker_settings()["remote"] == address
    assert heard[0].startswith("this worker uses the Spark that already runs")
    assert len(keepers.threads) == 1
    assert not any("starting Spark" in line for line in heard)


def until_ended(keepers: Threads, seconds: float) -> None:
    keepers.threads[0].join(seconds)
    assert not keepers.threads[0].is_alive()


def test_a_spark_that_does_not_start_ends_each_worker_with_the_reason(
    make: Make, keepers: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        SparkServer, "_command", lambda _self: ["sh", "-c", "echo bad setting >&2; exit 3"]
    )
    for spark in (make()[0], make()[0]):
        with pytest.raises(UpError, match=r"(?s)ended with code 3 while it started.*bad setting"):
            until(lambda spark=spark: spark.tick() is not None)
    until_ended(keepers, 20)


def test_a_keeper_that_ended_is_started_again_at_the_same_address(
    make: Make, keepers: Threads, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    spark, said = make()
    before = spark.worker_settings()
    keepers.end()

    def revived() -> bool:
        spark.tick()
        return len(keepers.threads) == 2

    until(revived)
    assert spark.worker_settings() == before
    assert any("the process that keeps Spark had ended, and is started again" in x for x in said)


def test_a_spark_that_was_up_and_does_not_start_is_tried_again(
    make: Make, keepers: Threads, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For example, its keeper was killed and the port is not free yet. No worker ends because of
    that."""
    monkeypatch.setattr("headgate_runtime.tasks.process_restarts.LONGEST_PAUSE_S", 0.0)
    (tmp_path / "go").touch()
    spark, said = make()

    def told(what: str) -> bool:
        spark.tick()
        return any(what in line for line in said)

    until(lambda: told("Spark is up at"))
    assert spark._joined is not None
    until(spark._joined.place.was_up)
    with monkeypatch.context() as failing:
        failing.setattr(SparkServer, "_command", lambda _self: ["sh", "-c", "exit 3"])
        keepers.end()
        until(lambda: told("Spark could not be started again: Spark ended with code 3"))
    said.clear()
    until(lambda: told("Spark is up at"))


def test_a_keeper_that_never_stays_is_given_up(
    make: Make, keepers: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SharedSpark, "_spawn", lambda *_given: None)
    spark, said = make()
    for _ in range(20):
        spark.tick()
    assert len(said) == 1, "it did not wait before the second try"
    monkeypatch.setattr("headgate_runtime.tasks.process_restarts.LONGEST_PAUSE_S", 0.0)
    spark._revive_at = 0.0
    for _ in range(100):
        spark.tick()
    assert said[-1].startswith("Spark is given up: the process that keeps Spark ends again and")
    assert len(said) < 40


def test_a_spark_that_was_given_up_is_left_alone(make: Make, keepers: Threads) -> None:
    spark, _ = make()
    assert spark._joined is not None
    spark._joined.place.tell_state(State(GIVEN_UP))
    keepers.end()
    spark.tick()
    assert len(keepers.threads) == 1
    assert make()[0].worker_settings() != spark.worker_settings()


def test_notes_are_told_once_whole_and_as_they_were(make: Make) -> None:
    spark, said = make()
    assert spark._joined is not None
    notes = spark._joined.place.notes
    spark.tick()
    said.clear()
    keeper = Keeper(spark._places, spark._joined.place, threading.Event())
    keeper._say("one\nand more")
    with notes.open("a") as file:
        file.write("ha")
    spark.tick()
    spark.tick()
    with notes.open("a") as file:
        file.write("lf\n")
    spark.tick()
    assert [line for line in said if "Spark" not in line] == ["one\nand more", "half"]


def test_what_differs_is_named_and_kept_apart(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    monkeypatch.setenv("AWS_PROFILE", "other")
    monkeypatch.setenv("SHLVL", "7")  # of a terminal
    spark, said = make(conf={"spark.driver.memory": "2g"})
    assert said[0].endswith(
        "is not shared: it differs in environment variable AWS_PROFILE, settings "
        "spark.driver.memory"
    )
    assert "2" in Path(spark.worker_settings()["outage.file"]).parts


def test_slots_of_a_cluster_are_not_ours_to_count(make: Make) -> None:
    one, _ = make(slots=10, master="spark://127.0.0.1:7077")
    more = [make(slots=10, master="spark://127.0.0.1:7077")[0] for _ in range(6)]
    assert {spark.worker_settings()["remote"] for spark in more} == {
        one.worker_settings()["remote"]
    }


def test_a_master_that_is_none_is_told_before_anything_starts(make: Make, keepers: Threads) -> None:
    with pytest.raises(UpError, match=r"file: headgate\.spark\.master: spark\.master is 'localx'"):
        make(master="localx")
    assert not keepers.threads


def test_a_folder_that_cannot_be_used_is_named(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UpError, match=r"file: Spark cannot be started there: .*headgate\.data"):
        make(folder=tmp_path / "file")


def test_a_temporary_folder_of_somebody_else_is_refused(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "link").symlink_to(theirs)
    monkeypatch.setattr(shared, "default_folder", lambda: tmp_path / "link")
    with pytest.raises(UpError, match="it belongs to another user"):
        make(folder=tmp_path / "link")
    assert default_folder().name == f"headgate-spark-{os.getuid()}"


def test_what_a_failed_spark_says_has_its_exit_code(make: Make) -> None:
    spark, _ = make()
    assert spark._joined is not None
    spark._joined.place.tell_state(State(FAILED, "why", 2))
    with pytest.raises(UpError, match="why") as raised:
        spark.tick()
    assert raised.value.exit_code == 2
