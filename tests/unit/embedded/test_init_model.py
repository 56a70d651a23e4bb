"""A model of the start of an exactly-once task, before any SQL: may a zombie fence its successor?

Workers own one task one after the other. Each does its start and its commits as atomic steps, and
may freeze between any two of them. The session of a frozen worker may end, and then the task goes
to the next. A worker that wakes up knows nothing of this and goes on where it was. Thousands of
random interleavings are run for three ways to initialise a producer:

* `UNCHECKED`: raise the epoch for any caller. A zombie that wakes up fences its successor, which
    must
  not initialise again by itself: the task stands still.
* `BEFORE`: look at the membership, then raise the epoch in a transaction of its own. The session
  can end between the two.
* `WITHIN`: do both in one transaction, as `EmbeddedProducer.init` does. No successor is fenced.
"""

import random
from enum import Enum, auto

import pytest

RUNS = 3_000
WORKERS = 3
STEPS = 60


class Check(Enum):
    UNCHECKED = auto()
    BEFORE = auto()
    WITHIN = auto()


class Log:
    """The content of the file, and the members of the group."""

    def __init__(self) -> None:
        self.members = set(range(WORKERS))
        self.owner = 0
        self.epoch = 0
        self.records: list[int] = []
        self.offset = 0
        self.shut_out_heirs = 0


class Worker:
    def __init__(self, number: int, log: Log, check: Check, fenced: bool) -> None:
        self.number = number
        self.log = log
        self.check = check
        self.fenced = fenced
        self.frozen = False
        self.step = self._look if check is Check.BEFORE else self._init
        self.over = False
        self.epoch = -1
        self.offset = 0

    def _look(self) -> None:
        self.over = self.number not in self.log.members
        self.step = self._init

    def _init(self) -> None:
        if self.check is Check.WITHIN and self.number not in self.log.members:
            self.over = True
            return
        self.log.epoch += 1
        self.epoch = self.log.epoch
        self.step = self._read

    def _read(self) -> None:
        self.offset = self.log.offset
        self.step = self._commit

    def _commit(self) -> None:
        log = self.log
        if self.fenced and self.epoch != log.epoch:
            log.shut_out_heirs += self.number == log.owner and self.number in log.members
            self.over = True
            return
        log.records += [self.offset, self.offset + 1]
        self.offset = log.offset = self.offset + 2


def run(seed: int, check: Check, fenced: bool = True) -> Log:
    chance = random.Random(seed)
    log = Log()
    workers = [Worker(0, log, check, fenced)]
    for _ in range(STEPS):
        worker = chance.choice(workers)
        happens = chance.random()
        if happens < 0.2:
            worker.frozen = not worker.frozen
        elif happens < 0.4 and worker.frozen and worker.number == log.owner:
            if worker.number + 1 < WORKERS:  # its session ends, and the next gets the task
                log.members.discard(worker.number)
                log.owner = worker.number + 1
                workers.append(Worker(log.owner, log, check, fenced))
        elif not worker.frozen and not worker.over:
            worker.step()
    return log


def shut_out(check: Check) -> int:
    return sum(run(seed, check).shut_out_heirs > 0 for seed in range(RUNS))


@pytest.mark.parametrize("check", [Check.UNCHECKED, Check.BEFORE])
def test_without_the_check_inside_zombies_shut_out_their_heirs(check: Check) -> None:
    assert shut_out(check) > RUNS // 200


def test_with_the_check_inside_no_heir_is_ever_shut_out() -> None:
    assert shut_out(Check.WITHIN) == 0


@pytest.mark.parametrize("check", list(Check))
def test_what_is_committed_is_there_once_in_any_case(check: Check) -> None:
    for seed in range(RUNS):
        log = run(seed, check)
        assert log.records == list(range(len(log.records))), seed


def test_without_epochs_it_would_be_there_twice() -> None:
    logs = [run(seed, Check.WITHIN, fenced=False) for seed in range(RUNS)]
    assert any(log.records != list(range(len(log.records))) for log in logs)
