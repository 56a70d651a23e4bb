"""One Spark driver that tasks of several workers share, and the process that started it and watches
it.

Drivers freeze, thaw, answer late and die. The watching process and the tasks freeze and die, too. A
step is a second. The rule of silence is the real `Silence`. `Rules` are those of the code around
it; a test switches off one at a time.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

from headgate_spark.driver_watch import LOOKS, Silence

LIMIT_S = LOOKS
"""Limit of the silence, so that there is a look in each step."""
LATE_S = 6
"""The most seconds that a decision, a kill or a start may take, each."""
TASKS = 3
STEPS, CALM_STEPS = 400, 10 * LIMIT_S


@dataclass(frozen=True)
class Rules:
    silence: type[Silence] = Silence
    ends_its_own: bool = True
    """A watch ends the process for which it was made. If off, it ends the one that runs by then."""
    awaits_the_end: bool = True
    """Another driver is started when the frozen one has ended. If off, it is started when the old
    one is found frozen."""
    compares_offsets: bool = True
    """A commit is made only if its batch begins at the committed offset."""


@dataclass(eq=False)
class Job:
    left_s: int
    staged: bool = False


@dataclass(eq=False)
class Driver:
    up_at: int
    alive: bool = True
    frozen: bool = False
    slow_s: int = 0
    """Seconds that an answer takes while the driver runs."""
    ends_at: int | None = None
    spans: list[list[int]] = field(default_factory=list)
    """Times in which the driver stood still: first and last second of each."""
    jobs: list[Job] = field(default_factory=list)

    def stood_still(self, now: int) -> bool:
        """Return whether the driver stood still lately for so long that even a late answer was
        overdue."""
        since = now - 2 * LIMIT_S
        spans = [(max(first, since), last) for first, last in self.spans if last >= since]
        return sum(last - first + 1 for first, last in spans) >= LIMIT_S // 4


@dataclass(eq=False)
class Watch:
    driver: Driver
    silence: Silence
    looked_at: int
    asked_at: int
    worked_s: int = 0
    answered: bool = False
    end_at: int | None = None
    """When the watch ends the driver, which it has found frozen."""
    over: bool = False
    """The watch has ended a driver."""


@dataclass(eq=False)
class Run:
    """One run of a task, which commits what its job has staged."""

    task: int
    start: int
    driver: Driver | None = None
    job: Job | None = None
    frozen_until: int = 0


class DriverWorld:
    """The world of one run. It raises `AssertionError` if a batch is committed twice, if a watch
    ends another driver than its own, or if a task does not go on."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self._random = random.Random(seed)
        self._rules = rules
        self._now = 0
        self._frozen_until = 0
        """The watching process stands still till then."""
        self._drivers = [Driver(0)]
        self._watches: list[Watch] = []
        self.log: list[list[int]] = [[] for _ in range(TASKS)]
        """Committed batches of each task."""
        self._runs = [Run(task, 0) for task in range(TASKS)]
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        for _ in range(STEPS):
            self._disturb()
            self._step()
        before = [len(batches) for batches in self.log]
        self._frozen_until = 0  # the driver stays as it is
        for _ in range(CALM_STEPS):
            self._step()
        assert all(map(int.__lt__, before, map(len, self.log))), "a task does not go on"

    @property
    def _driver(self) -> Driver:
        return self._drivers[-1]

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _disturb(self) -> None:
        for driver in self._drivers:
            if driver.alive and self._chance(0.06 if driver.frozen else 0.01):
                driver.frozen = not driver.frozen
                if driver.frozen:
                    driver.spans.append([self._now, self._now])
            if driver.alive and self._chance(0.005):
                driver.alive = False
                self.counts["died"] += 1
        if self._chance(0.05):
            self._driver.slow_s = self._random.randrange(LIMIT_S // 2)
        if self._chance(0.01):
            self._frozen_until = self._now + self._random.randrange(3 * LIMIT_S)
        for run in list(self._runs):
            if self._chance(0.02):
                self._lose(run)

    def _lose(self, run: Run) -> None:
        """Let a worker take the run for dead, so that another starts the task. The run may be a
        zombie."""
        if run.frozen_until > self._now or run.start < len(self.log[run.task]):
            return
        run.frozen_until = self._now + self._random.randrange(2 * LIMIT_S)
        self._runs.append(Run(run.task, len(self.log[run.task])))
        self.counts["zombies"] += 1

    def _step(self) -> None:
        self._now += 1
        for driver in self._drivers:
            self._work(driver)
        if self._now >= self._frozen_until:
            for watch in self._watches:
                self._look(watch)
            self._supervise()
        self._drivers = [one for one in self._drivers if one.alive or one is self._driver]
        assert sum(driver.alive for driver in self._drivers) <= 1, "two drivers at a time"
        for run in list(self._runs):
            if self._now >= run.frozen_until:
                self._go_on(run)

    def _work(self, driver: Driver) -> None:
        if driver.ends_at is not None and self._now >= driver.ends_at:
            driver.alive = False
        if driver.alive and driver.frozen:
            driver.spans[-1][1] = self._now
        if not driver.alive or driver.frozen or self._now < driver.up_at:
            return
        for job in driver.jobs:
            job.left_s -= 1
            job.staged = job.left_s <= 0
        driver.jobs = [job for job in driver.jobs if not job.staged]
        for watch in self._watches:
            if watch.driver is driver:
                watch.worked_s += 1
                watch.answered = watch.worked_s > driver.slow_s

    # -- the watching process --

    def _look(self, watch: Watch) -> None:
        if watch.end_at is not None:
            if self._now >= watch.end_at:
                # It may go on again by now, if this process was frozen: that costs a start.
                self._end(watch.driver if self._rules.ends_its_own else self._driver, watch)
                watch.end_at, watch.over = None, True
            return
        if watch.over:
            return
        since_s, watch.looked_at = self._now - watch.looked_at, self._now
        overdue = self._now - watch.asked_at >= LIMIT_S
        # An answer that waited for this process may be thrown away with its call.
        answered = watch.answered and not (overdue and self._chance(0.5))
        if answered or overdue:
            watch.asked_at, watch.worked_s, watch.answered = self._now, 0, False
        if watch.silence.looked(since_s, answered) and watch.driver.alive:
            assert watch.driver.stood_still(self._now), "a driver that answers is found frozen"
            watch.end_at = self._now + self._random.randrange(LATE_S)

    def _end(self, driver: Driver, watch: Watch) -> None:
        if not driver.alive:
            return
        assert driver is watch.driver, "another driver is ended"
        self.counts["ended" if driver.frozen else "ended after it went on"] += 1
        driver.ends_at = self._now + self._random.randrange(LATE_S)

    def _supervise(self) -> None:
        """Do as `SparkService.tick`: start a driver after the last one has died, and watch it once
        it is up."""
        driver = self._driver
        watched = any(watch.driver is driver for watch in self._watches)
        if driver.alive and not watched and self._now >= driver.up_at:
            silence = self._rules.silence(LIMIT_S)
            self._watches.append(Watch(driver, silence, self._now, self._now))
        found = any(each.driver is driver and each.end_at is not None for each in self._watches)
        if driver.alive and (self._rules.awaits_the_end or not found):
            return
        # A watch that has decided ends its driver all the same.
        self._watches = [watch for watch in self._watches if watch.end_at is not None]
        self._drivers.append(Driver(self._now + 1 + self._random.randrange(LATE_S)))

    # -- tasks --

    def _go_on(self, run: Run) -> None:
        if run.driver is None or run.job is None:
            if self._now >= self._driver.up_at and self._driver.alive:
                run.driver, run.job = self._driver, Job(self._random.randrange(1, 5))
                run.driver.jobs.append(run.job)
        elif run.job.staged:
            self._commit(run)
        elif not run.driver.alive:
            run.driver = run.job = None  # the call ends with the driver, and is made anew

    def _commit(self, run: Run) -> None:
        """Commit a batch that Spark has staged. The commit names the offset at which the batch
        begins."""
        batches = self.log[run.task]
        if self._rules.compares_offsets and run.start != len(batches):
            self._runs.remove(run)
            self.counts["refused"] += 1
            return
        batches.append(run.start)
        assert batches == list(range(len(batches))), "a batch is there twice"
        run.start, run.driver, run.job = len(batches), None, None


def first_wrong(rules: Rules, seeds: range) -> tuple[int, str] | None:
    """Return the first seed that fails, and the text of its error."""
    for seed in seeds:
        try:
            DriverWorld(seed, rules).run()
        except AssertionError as error:
            return seed, str(error)
    return None
