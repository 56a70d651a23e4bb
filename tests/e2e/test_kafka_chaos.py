"""A million lines go through three workers on Kafka, exactly once. Workers, tasks and the broker
are killed, and frozen ones wake up as zombies.

Committed readers must see the input once and in order. No task may ever be FAILED, and all must be
RUNNING again without help. Every fault happens while records flow, or the test proves nothing.

Ten of the zombies are frozen in their commit, after their last look at their lifeline. Nothing but
the brokers keeps them from ending their transaction, and each must end fenced.
"""

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands.processes import Process, signal_if_alive
from support.kafka.cluster import (
    QUICK_GROUPS,
    Described,
    KafkaCluster,
    KeptWorker,
    Watcher,
    await_true,
    create_topic,
    kill,
    producer_epoch,
    quick_properties,
    read_committed,
    states_ever,
    transactions,
)

from local_kafka.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

RECORDS = 1_000_000
BATCH = 50
"""Lines of a transaction. Small ones, so that at most moments a commit is under way, and the lines
last until all blows have landed, on a quick machine too."""
LAST_BATCH = 2_000
"""Afterwards."""
FLOW_S = 90.0
"""More than the longest backoff of a task that was killed again and again."""
CALM_S = 1.0
SEED = int(os.environ.get("HEADGATE_CHAOS_SEED", "0")) or random.SystemRandom().randrange(
    1, 1 << 31
)
KILLS = 20
ZOMBIES = 10
TASK = "lines-0"
OFFSETS = "g-offsets"
COMMITTING = "Ongoing, with its source offsets"
"""State of a transaction whose commit has begun, and whose end the brokers have not heard of."""
BROKER = "SIGKILL of the broker"
LOOKS = 40
"""How often a task is caught before others may have become its owner."""
STATES = re.compile(rf"\btask {TASK} (?:is )?([A-Z]{{2,}})\b")
MEMBER = re.compile(r" generation \d+, protocol ")
ENDS = re.compile(
    TASK + r": (fenced|lost|failed|stopped|abandoned|killing|lifeline lost)(?:: | )?(.*)"
)
LAST_WORD = re.compile(r"^(fenced|lost|failed|stopped|abandoned)(?:: )?(.*)$", re.MULTILINE)
"""Of a task, on its standard error."""


class Chaos:
    def __init__(
        self,
        cluster: KafkaCluster,
        broker: Broker,
        watcher: Watcher,
        chance: random.Random,
        say: Callable[[str], None],
    ) -> None:
        self.cluster = cluster
        self.broker = broker
        self.watcher = watcher
        self.chance = chance
        self.say = say
        self.landed: Counter[str] = Counter()
        self.zombies = 0
        """Frozen in their commit, and fenced when they went on."""
        self.ends: Counter[str] = Counter()
        """How the other zombies ended."""
        self.early: Counter[str] = Counter()
        """What was killed before it was RUNNING, or a member."""
        self.fenced = 0
        """Zombies whose producer the brokers had shut out before they woke up."""
        self.left: Counter[str] = Counter()
        """In what states the brokers had the transactions of tasks that were killed, after that."""

    def flowing(self) -> None:
        """Records arrive now, and the end is not near."""
        before = self.watcher.count
        await_true("progress", lambda: self.watcher.count > before, FLOW_S, self.why)
        assert self.watcher.count < RECORDS, f"too late; landed: {self.landed}"

    def why(self) -> str:
        return f"{self.cluster.status('lines')}\n{self.cluster.tail()}"

    def blow(self, what: str) -> None:
        self.landed[what] += 1
        number = self.landed.total()
        self.say(f"{number}. {what} at {self.watcher.count:,} records")

    @property
    def kills(self) -> int:
        """Number of kills, without those of the broker."""
        return sum(
            count
            for what, count in self.landed.items()
            if what.startswith("SIGKILL") and what != BROKER
        )

    def owner(self) -> tuple[KeptWorker, Process]:
        """The worker whose task delivers, and the task's process."""
        found: list[tuple[KeptWorker, Process]] = []

        def look() -> bool:
            found[:] = [
                (kept, task)
                for kept in self.cluster.workers
                if kept.worker() is not None and delivers(kept)
                for task in kept.tasks(TASK)
            ]
            return bool(found)

        await_true("task", look, FLOW_S, self.why)
        return max(found, key=lambda each: each[1].pid)

    def settled_owner(self) -> tuple[KeptWorker, Process]:
        """Return the `owner` once it has been owner for a while, so that the task is not about to
        be stopped."""
        found = self.owner()
        since = time.monotonic()
        while time.monotonic() < since + CALM_S:
            time.sleep(0.1)
            if (now := self.owner()) != found:
                found, since = now, time.monotonic()
        return found

    # -- kills --

    def strike(self, what: str, hit: Callable[[], bool]) -> None:
        """Try, each time while records flow, until there was something to kill."""
        self.flowing()
        while not hit():
            self.say(f"   there was no {what} to kill, so once more")
            self.flowing()
        self.blow(f"SIGKILL of {what}")

    def kill_the_task(self) -> None:
        self.strike("the task", lambda: self.kill_with_look(self.owner()[1]))

    def kill_the_task_in_its_commit(self) -> None:
        """Frozen, it can end its transaction no more."""
        self.strike("the task in its commit", lambda: self.kill_with_look(self.caught()[1]))

    def kill_with_look(self, *victims: Process | None) -> bool:
        """The task and perhaps, before it, its worker. Its transaction is as it left it until
        another has its id, and so a newer epoch."""
        epoch = self.epoch()
        if not all(kill(victim) for victim in victims):
            return False
        state, now = self.transaction()
        self.left[state if now == epoch else "unknown"] += 1
        return True

    def kill_its_worker(self) -> None:
        self.strike("the task's worker", lambda: kill(self.owner()[0].worker()))

    def kill_a_worker(self) -> None:
        self.strike("a worker", lambda: kill(self.chance.choice(self.cluster.workers).worker()))

    def kill_worker_and_task(self) -> None:
        def hit() -> bool:
            kept, task = self.owner()
            return self.kill_with_look(kept.worker(), task)

        self.strike("worker and task", hit)

    def kill_what_tasks_are_forked_from(self) -> None:
        what = "the process that tasks are forked from"
        self.strike(what, lambda: kill(self.owner()[0].zygote()))

    def kill_a_task_that_starts(self) -> None:
        """Somewhere between its process's birth and its first records; the first time at sight,
        until one was not RUNNING yet."""
        window_s = 0.8 if self.early["task"] else 0.0
        while True:
            known = {task.pid for kept in self.cluster.workers for task in kept.tasks(TASK)}
            self.kill_the_task()
            early = self.kill_the_next_task(known, window_s)
            self.early["task"] += early
            if self.early["task"]:
                return

    def kill_the_next_task(self, known: set[int], window_s: float) -> bool:
        """Kill the next run of a task. Return whether it was killed before it was RUNNING."""
        new: list[tuple[KeptWorker, Process]] = []

        def look() -> bool:
            new[:] = [
                (kept, task)
                for kept in self.cluster.workers
                for task in kept.tasks(TASK)
                if task.pid not in known
            ]
            return bool(new)

        while True:
            await_true("new task", look, FLOW_S, self.why, pause_s=0)
            kept, task = new[-1]
            time.sleep(self.chance.uniform(0, window_s))
            start = run_start(kept)
            if kill(task):
                break
            known.add(task.pid)

        def told() -> bool:
            return states_since(kept, start)[-1:] not in ([], ["RUNNING"])

        await_true("word on its end", told, FLOW_S, self.why)
        early = "RUNNING" not in states_since(kept, start)
        self.blow(f"SIGKILL of a task that starts, {'not yet' if early else 'and is'} RUNNING")
        return early

    def kill_a_worker_that_starts(self) -> None:
        """Kill workers that start until one was killed before it was a member."""
        window_s = 2.0
        while not self.early["worker"]:
            kept = self.chance.choice(self.cluster.workers)
            self.strike("a worker", lambda kept=kept: kill(kept.worker()))
            start = len(kept.log.read_text(errors="replace"))
            await_true("new worker", kept.worker, FLOW_S, self.why)
            time.sleep(self.chance.uniform(0, window_s))
            hit = kill(kept.worker())
            early = not MEMBER.search(kept.log.read_text(errors="replace"), start)
            if hit:
                self.blow(
                    f"SIGKILL of a worker that starts, {'no' if early else 'already a'} member"
                )
                self.early["worker"] += early
            window_s /= 2

    # -- zombies --

    def caught(self) -> tuple[KeptWorker, Process]:
        """The owner, the task frozen in its commit: it has looked at its lifeline and brought its
        source offsets into the transaction, whose end it has not told the brokers."""
        while True:
            self.flowing()
            kept, task = self.settled_owner()
            with transactions(self.broker.address) as described:
                _, epoch = transaction(described)
                for _ in range(LOOKS):
                    if self.is_caught(task, epoch, described):
                        return kept, task
                    time.sleep(self.chance.uniform(0, 0.05))

    def is_caught(self, task: Process, epoch: tuple[int, int], described: Described) -> bool:
        """Return whether the frozen task was caught in its commit. If not, let it go on.

        A request that was under way at the freeze has arrived by the second look, which uses
        another connection.
        """
        if not signal_if_alive(task.pid, signal.SIGSTOP):
            return False
        wanted = (COMMITTING, epoch)
        if transaction(described) == wanted and self.transaction() == wanted:
            return True
        signal_if_alive(task.pid, signal.SIGCONT)
        return False

    def freeze_worker_and_task_in_its_commit(self) -> None:
        """Freeze both, as if the machine were suspended. The task wakes up first and goes on where
        it stood, since its worker might otherwise end it before it has tried."""
        kept, task = self.caught()
        start = run_start(kept)
        worker, epoch = kept.worker(), self.epoch()
        assert worker is not None and signal_if_alive(worker.pid, signal.SIGSTOP), self.why()
        self.blow("SIGSTOP of worker and task in its commit")
        self.replaced(task, epoch)
        assert signal_if_alive(task.pid, signal.SIGCONT), "nobody could have ended it"
        await_true("end of the zombie", lambda: not task.alive(), 20, self.why)
        signal_if_alive(worker.pid, signal.SIGCONT)

        def words() -> list[tuple[str, str]]:
            log = kept.log.read_text(errors="replace")
            return [word for word in ENDS.findall(log, start) if word[0] != "lifeline lost"]

        await_true("last word of the zombie", words, 20, self.why)
        self.is_fenced(words()[0])

    def freeze_the_task_in_its_commit_and_kill_its_worker(self) -> None:
        """Freeze the task and kill its worker. No process is left that would end the task, and the
        task has not heard that it has no worker. The test reads its reports in the worker's
        place."""
        kept, task = self.caught()
        epoch = self.epoch()
        said = os.open(f"/proc/{task.pid}/fd/2", os.O_RDONLY | os.O_NONBLOCK)
        try:
            self.blow("SIGSTOP of the task in its commit, whose worker is killed")
            assert kill(kept.worker()), self.why()
            self.replaced(task, epoch)
            assert signal_if_alive(task.pid, signal.SIGCONT), "nobody could have ended it"
            await_true("end of the zombie", lambda: not task.alive(), 20, self.why)
            told = os.read(said, 65_536).decode(errors="replace")
        finally:
            os.close(said)
        self.is_fenced((LAST_WORD.findall(told) or [("nothing", told)])[-1])

    def is_fenced(self, last_word: tuple[str, str]) -> None:
        outcome, reason = last_word
        assert outcome == "fenced", last_word
        self.zombies += 1
        self.say(f"   it ended as {outcome}: {reason[:60]}")

    def freeze_worker_and_task(self) -> None:
        """Freeze both at any moment, and wake both at once. The task's lifeline may end it."""
        self.until_zombie(self._freeze_worker_and_task)

    def _freeze_worker_and_task(self) -> bool:
        self.flowing()
        kept, task = self.settled_owner()
        start = run_start(kept)
        worker = kept.worker()
        self.blow("SIGSTOP of worker and task")
        assert worker is not None
        frozen, epoch = [worker, task], self.epoch()
        for process in frozen:
            signal_if_alive(process.pid, signal.SIGSTOP)
        self.replaced(task, epoch)
        for process in reversed(frozen):
            signal_if_alive(process.pid, signal.SIGCONT)
        return self.ended(kept, task, start)

    def freeze_the_task(self) -> None:
        """Freeze the task. Its worker does not wait for it to wake up."""
        self.flowing()
        kept, task = self.settled_owner()
        self.blow("SIGSTOP of the task")
        epoch = self.epoch()
        signal_if_alive(task.pid, signal.SIGSTOP)
        self.replaced(task, epoch)
        assert not task.alive(), self.why()
        self.ends["killed by its worker"] += 1
        assert kept.worker() is not None

    def freeze_the_worker(self) -> None:
        """Freeze the worker. Its task hears nothing more, and must end by itself."""
        self.flowing()
        kept, task = self.settled_owner()
        start = run_start(kept)
        worker = kept.worker()
        assert worker is not None
        self.blow("SIGSTOP of the worker")
        epoch = self.epoch()
        signal_if_alive(worker.pid, signal.SIGSTOP)
        self.replaced(task, epoch)
        signal_if_alive(worker.pid, signal.SIGCONT)
        self.ended(kept, task, start)

    def until_zombie(self, freeze: Callable[[], bool]) -> None:
        while not freeze():
            self.say("   it was being stopped when it was frozen: no zombie, so once more")

    def epoch(self) -> tuple[int, int]:
        """Return the epoch with which the brokers accept the task's producer."""
        return producer_epoch(self.broker.address, f"g-{TASK}")

    def transaction(self) -> tuple[str, tuple[int, int]]:
        """As below, now."""
        with transactions(self.broker.address) as described:
            return transaction(described)

    def replaced(self, zombie: Process, epoch: tuple[int, int]) -> None:
        """Another process delivers, under an epoch of its own: the zombie's, at most `epoch` or one
        that it was given since, is shut out."""

        def other() -> bool:
            tasks = [t for kept in self.cluster.workers for t in kept.tasks(TASK)]
            return any(t.pid != zombie.pid for t in tasks)

        await_true("replacement", other, FLOW_S, self.why)
        before = self.watcher.count
        await_true("progress", lambda: self.watcher.count > before, FLOW_S, self.why)
        assert self.epoch() > epoch, f"nobody fenced the zombie's {epoch}"
        self.fenced += 1

    def ended(self, kept: KeptWorker, zombie: Process, start: int) -> bool:
        """The zombie ends by itself, and says why.

        Args:
            start: of its run in the worker's log.

        Returns:
            Whether it was one: not, if it had been asked to stop and had made its last commit.
        """
        await_true("end of the zombie", lambda: not zombie.alive(), 20, self.why)

        def words() -> list[tuple[str, str]]:
            log = kept.log.read_text(errors="replace")
            return ENDS.findall(log, start)

        # Both wake up at once: its worker may kill it before it has said why it ends.
        deadline = time.monotonic() + 3
        while not words() and time.monotonic() < deadline:
            time.sleep(0.05)
        outcome, reason = words()[0] if words() else ("killing", "before it has said a word")
        if outcome == "stopped":
            return False
        assert outcome in ("fenced", "lost", "killing", "lifeline lost"), (outcome, reason)
        self.ends[outcome] += 1
        self.say(f"   it ended as {outcome}: {reason[:60]}")
        return True

    # -- the broker --

    def kill_the_broker(self) -> None:
        self.flowing()
        self.blow(BROKER)
        self.broker.kill()
        time.sleep(self.chance.uniform(0, 2.0))
        self.broker.start()

    def plan(self) -> list[Callable[[], None]]:
        """20 SIGKILLs, 10 zombies that only brokers can end, 3 that others may, 2 kills of the
        broker, in an order of the seed's."""
        kills = [
            *[self.kill_the_task] * 2,
            *[self.kill_the_task_in_its_commit] * 1,
            *[self.kill_what_tasks_are_forked_from] * 1,
            *[self.kill_its_worker] * 4,
            *[self.kill_worker_and_task] * 1,
            *[self.kill_a_worker] * 3,
            *[self.kill_a_task_that_starts] * 3,
            *[self.kill_a_worker_that_starts] * 1,
        ]
        zombies = [
            *[self.freeze_worker_and_task_in_its_commit] * 7,
            *[self.freeze_the_task_in_its_commit_and_kill_its_worker] * 3,
            *[self.freeze_worker_and_task] * 1,
            *[self.freeze_the_task] * 1,
            *[self.freeze_the_worker] * 1,
        ]
        blows = [*kills, *zombies, *[self.kill_the_broker] * 2]
        self.chance.shuffle(blows)
        return blows


def transaction(described: Described) -> tuple[str, tuple[int, int]]:
    """The state of the task's at the coordinator, and whose it is, by id and epoch."""
    found = described(f"g-{TASK}")
    state = str(found.state.value)
    if state == "Ongoing" and any(place.topic == OFFSETS for place in found.topic_partitions):
        state = COMMITTING
    return state, (int(found.producer_id), int(found.producer_epoch))


def delivers(kept: KeptWorker) -> bool:
    """Return whether the worker's last status of the task is RUNNING."""
    words = STATES.findall(kept.log.read_text(errors="replace"))
    return bool(words) and words[-1] == "RUNNING"


def states_since(kept: KeptWorker, start: int) -> list[str]:
    """Return the states of the task in the worker's log from `start` on."""
    return STATES.findall(kept.log.read_text(errors="replace"), start)


def run_start(kept: KeptWorker) -> int:
    """Return where the task's last run begins in the worker's log."""
    return kept.log.read_text(errors="replace").rindex(f"task {TASK} starts as run")


def write_lines(file: Path) -> None:
    with file.open("w") as out:
        out.writelines(f"line {n}\n" for n in range(RECORDS))


@pytest.mark.timeout(1200)
def test_a_million_lines_survive_everything_once_and_in_order(
    own_broker: Callable[..., Broker],
    kafka_cluster: Callable[..., KafkaCluster],
    tmp_path: Path,
    say: Callable[[str], None],
) -> None:
    say(f"seed {SEED}; run it again with HEADGATE_CHAOS_SEED={SEED}")
    write_lines(tmp_path / "lines.txt")
    broker = own_broker(settings=QUICK_GROUPS, own_controller=True)
    create_topic(broker.address, "lines")
    cluster = kafka_cluster(broker.address, "g", 3, quick_properties())
    config = {"connector.class": "FileStreamSource", "tasks.max": "1", "topic": "lines"}
    file = str(tmp_path / "lines.txt")
    lines = {**config, "file": file}
    cluster.create("lines", {**lines, "batch.size": str(BATCH)})
    cluster.create("idle", {**config, "file": str(tmp_path / "no.txt"), "topic": "idle"})
    watcher = Watcher(broker.address, "lines")
    try:
        chaos = Chaos(cluster, broker, watcher, random.Random(SEED), say)
        for blow in chaos.plan():
            blow()
            time.sleep(chaos.chance.uniform(0.0, 0.6))
        assert watcher.count < RECORDS, f"the records ended too soon: {chaos.landed}"
        cluster.create("lines", {**lines, "batch.size": str(LAST_BATCH)})
        await_true("last record", lambda: watcher.count >= RECORDS, 300, chaos.why)
        for name in ("lines", "idle"):
            await_true(f"{name} RUNNING", lambda n=name: cluster.running(n, 1), 60, chaos.why)
    finally:
        watcher.close()
    say(f"{chaos.landed.total()} blows, {chaos.fenced} producers fenced, {chaos.zombies} zombies")
    say(f"other zombies ended {dict(chaos.ends)}; killed early: {dict(chaos.early)}")
    say(f"transactions of tasks that were killed: {dict(chaos.left)}")
    assert chaos.kills >= KILLS, chaos.landed
    assert chaos.left[COMMITTING] > 0, chaos.left
    assert chaos.early["task"] > 0 and chaos.early["worker"] > 0, chaos.early
    assert chaos.zombies == ZOMBIES
    found = [value for _, value in read_committed(broker.address, "lines")]
    assert found == [b"line %d" % n for n in range(RECORDS)], summary(found)
    states = states_ever(broker.address, "g-status", 2)
    assert states and not any("FAILED" in each for each in states.values()), states
    say(f"all {RECORDS:,} lines once and in order")


def summary(found: list[bytes]) -> str:
    numbers = [int(value.split()[1]) for value in found]
    lost = RECORDS - len(set(numbers))
    doubled = len(numbers) - len(set(numbers))
    return f"{lost} lost, {doubled} doubled, in order: {numbers == sorted(numbers)}"
