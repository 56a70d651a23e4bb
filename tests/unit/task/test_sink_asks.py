"""A sink task asks its context for pauses, timeouts and commits, on a real log."""

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from support.task.body_bench import BodyBench
from support.task.sink_records import committed
from support.task.sink_records import fill as fill_with

from headgate.connector.api import RetriableError, SinkRecord, SinkTask
from headgate.task.messages import PauseTask, ResumeTask, TaskKind, TaskOutcome, TaskPaused
from headgate.task.sink import SinkMachine, SinkSettings
from headgate.task.steps import (
    Begin,
    HoldPartitions,
    OpenPartitions,
    PartitionsAssigned,
    PartitionsRevoked,
    SinkRequested,
    Started,
)

CONFIG = {"topics": "t"}
NEVER = {"offset.flush.interval.ms": "3600000"}


def fill(folder: Path, count: int, partitions: int = 2) -> None:
    fill_with(folder, [b"%d" % n for n in range(count)], partitions)


class Taking(SinkTask):
    """Remembers how many records it took of each partition."""

    made: ClassVar[list["Taking"]]

    def __init_subclass__(cls) -> None:
        cls.made = []

    def start(self, config: Mapping[str, str]) -> None:
        self.taken = [0, 0]
        self.made.append(self)

    def put(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            self.taken[record.partition] += 1


def sink(folder: Path, task: type[SinkTask], number: int = 0) -> BodyBench:
    return BodyBench(folder, task, CONFIG, kind=TaskKind.SINK, number=number, settings=NEVER)


def test_what_open_pauses_gives_nothing_before_it_is_resumed(tmp_path: Path) -> None:
    """The poll that brought the partitions gives none of their records either."""
    fill(tmp_path, 10)

    class Waiting(Taking):
        def open(self, partitions: Collection[tuple[str, int]]) -> None:
            self.context.pause(("t", 1))

        def put(self, records: Sequence[SinkRecord]) -> None:
            super().put(records)
            seen.append(list(self.taken))
            if self.taken[0] == 7:
                self.context.resume(("t", 1))

    seen: list[list[int]] = []
    bench = sink(tmp_path, Waiting)
    bench.start().until(lambda: seen)
    time.sleep(0.3)
    assert seen == [[5, 0]]
    fill(tmp_path, 4)
    bench.until(lambda: Waiting.made[0].taken == [7, 7])
    bench.stop()


def test_a_pause_of_the_task_outlasts_redelivery_and_a_pause_of_the_connector(
    tmp_path: Path,
) -> None:
    fill(tmp_path, 10)

    class Busy(Taking):
        tries = 0

        def put(self, records: Sequence[SinkRecord]) -> None:
            self.tries += 1
            if self.tries == 1:
                self.context.pause(("t", 0))
                raise RetriableError("table is locked")
            super().put(records)
            if self.taken[1] == 9:
                self.context.resume(("t", 0))

    bench = sink(tmp_path, Busy)
    bench.start().until(lambda: Busy.made and Busy.made[0].taken == [5, 5])
    fill(tmp_path, 4)
    bench.until(lambda: Busy.made[0].taken == [5, 7])
    bench.lifeline.deliver(PauseTask())
    bench.until(lambda: any(isinstance(report, TaskPaused) for report in bench.reports))
    bench.lifeline.deliver(ResumeTask())
    time.sleep(0.3)
    assert Busy.made[0].taken == [5, 7]
    fill(tmp_path, 4)
    bench.until(lambda: Busy.made[0].taken == [9, 9])
    bench.stop()


def test_a_paused_partition_that_stays_through_a_rebalance_stays_paused(tmp_path: Path) -> None:
    fill(tmp_path, 2)

    class Keeping(Taking):
        opened = 0

        def open(self, partitions: Collection[tuple[str, int]]) -> None:
            self.opened += 1
            if self.opened == 1 and len(Keeping.made) == 1:
                self.context.pause(*partitions)

    first, second = sink(tmp_path, Keeping), sink(tmp_path, Keeping, 1)
    first.start().until(lambda: Keeping.made and Keeping.made[0].opened == 1)
    second.start().until(lambda: Keeping.made[0].opened == 2)
    # The partition that moved is read by its new owner, the other one by nobody.
    second.until(lambda: sum(Keeping.made[1].taken) == 1)
    time.sleep(0.3)
    assert Keeping.made[0].taken == [0, 0]
    second.stop()
    # What comes back was lost in between: its pause is over.
    fill(tmp_path, 2)
    first.until(lambda: sum(Keeping.made[0].taken) == 1)
    time.sleep(0.3)
    assert sum(Keeping.made[0].taken) == 1
    first.stop()


def test_a_pause_ends_with_a_partition_that_goes_alone() -> None:
    """Partition by partition, as cooperative consumers do: it comes back as another's."""
    a, b = ("t", 0), ("t", 1)
    machine = SinkMachine(SinkSettings())
    for given in (
        Begin(),
        Started(),
        PartitionsAssigned((a, b)),
        SinkRequested((a, b), (), None, False),
    ):
        machine.handle(0, given)
    machine.handle(0, PartitionsRevoked((a,)))
    assert machine.handle(0, PartitionsAssigned(())) == [HoldPartitions((b,))]
    assert machine.handle(0, PartitionsAssigned((a,))) == [OpenPartitions((a,))]


def test_only_assigned_partitions_can_be_paused(tmp_path: Path) -> None:
    fill(tmp_path, 2)

    class Grasping(Taking):
        def put(self, records: Sequence[SinkRecord]) -> None:
            self.context.pause(("t", 0), ("other", 3))

    ended = sink(tmp_path, Grasping).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert ended.reason == (
        "ValueError: other-3 is not assigned to this task, which may pause and resume its own "
        "partitions only: t-0, t-1"
    )


def test_a_timeout_below_zero_is_refused(tmp_path: Path) -> None:
    class Hurried(Taking):
        def start(self, config: Mapping[str, str]) -> None:
            self.context.timeout(-1)

    ended = sink(tmp_path, Hurried).start().wait()
    assert ended.reason == "ValueError: timeout(-1): expected milliseconds, 0 or more"


def test_a_timeout_is_the_wait_before_the_next_try(tmp_path: Path) -> None:
    fill(tmp_path, 2)

    class Backing(Taking):
        def put(self, records: Sequence[SinkRecord]) -> None:
            tries.append(time.monotonic())
            self.context.timeout(600)
            raise RetriableError("no space")

    tries: list[float] = []
    bench = sink(tmp_path, Backing)
    bench.start().until(lambda: len(tries) == 3)
    bench.stop()
    assert min(tries[1] - tries[0], tries[2] - tries[1]) > 0.55
    assert tries[2] - tries[0] < 5


def test_put_comes_without_records_when_the_timeout_has_passed(tmp_path: Path) -> None:
    fill(tmp_path, 2)

    class Timed(Taking):
        def put(self, records: Sequence[SinkRecord]) -> None:
            puts.append((time.monotonic(), len(records)))
            if len(puts) < 3:
                self.context.timeout(150)

    puts: list[tuple[float, int]] = []
    bench = sink(tmp_path, Timed)
    bench.start().until(lambda: len(puts) == 3)
    time.sleep(0.4)
    bench.stop()
    assert [count for _, count in puts] == [2, 0, 0]
    assert puts[1][0] - puts[0][0] > 0.14


def test_a_commit_that_is_asked_for_comes_before_the_next_put(tmp_path: Path) -> None:
    fill(tmp_path, 6_000, partitions=1)

    class Eager(Taking):
        def put(self, records: Sequence[SinkRecord]) -> None:
            seen.append(committed(tmp_path).get(("t", 0), 0))
            if len(seen) == 2:
                self.context.request_commit()

    seen: list[int] = []
    bench = sink(tmp_path, Eager)
    bench.start().until(lambda: len(seen) == 3)
    bench.stop()
    assert seen == [0, 0, 4_000]
