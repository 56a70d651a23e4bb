"""A million lines through three workers on Kafka, exactly once, while workers, tasks and the broker
are killed and frozen ones wake up as zombies.

Committed readers must see the input once and in order, no task may ever be FAILED, and all must be
RUNNING again without help. Every blow lands while records flow, or the test proves nothing.
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
from support.kafka_cluster import (
    QUICK_GROUPS,
    KafkaCluster,
    KeptWorker,
    Watcher,
    await_true,
    create_topic,
    described_transaction,
    kill,
    producer_epoch,
    quick_properties,
    read_committed,
    states_ever,
)
from support.processes import Process, signal_if_alive

from local_kafka.broker import Broker

pytestmark = pytest.mark.slow

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
TASK = "lines-0"
STATES = re.compile(f'status-task-{TASK} {{"state":"([A-Z]+)"')
ENDS = re.compile(
    TASK + r": (fenced|lost|failed|stopped|abandoned|killing|lifeline lost)(?:: | )?(.*)"
)


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
        self.ends: Counter[str] = Counter()
        """How zombies ended."""
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
        """As `owner`, when it has been for a while: nobody has asked the task to stop."""
        found = self.owner()
        since = time.monotonic()
        while time.monotonic() < since + CALM_S:
            time.sleep(0.1)
            if (now := self.owner()) != found:
                found, since = now, time.monotonic()
        return found

    # -- kills --

    def kill_the_task(self) -> None:
        self.flowing()
        _, task = self.owner()
        self.blow("SIGKILL of the task")
        self.kill_with_look(task)

    def kill_the_task_in_its_transaction(self) -> None:
        """Frozen, it can end it no more; else it goes on."""
        before = self.left["Ongoing"]
        while self.left["Ongoing"] == before:
            self.flowing()
            _, task = self.settled_owner()
            epoch = self.epoch()
            signal_if_alive(task.pid, signal.SIGSTOP)
            if self.transaction() == ("Ongoing", epoch):
                self.blow("SIGKILL of the task in its transaction")
                self.kill_with_look(task)
            signal_if_alive(task.pid, signal.SIGCONT)

    def kill_with_look(self, task: Process, worker: Process | None = None) -> None:
        """Its transaction is as it left it until another has its id, and so a newer epoch."""
        epoch = self.epoch()
        kill(worker)
        kill(task)
        state, now = self.transaction()
        self.left[state if now == epoch else "unknown"] += 1

    def kill_its_worker(self) -> None:
        self.flowing()
        kept, _ = self.owner()
        self.blow("SIGKILL of the task's worker")
        kill(kept.worker())

    def kill_a_worker(self) -> None:
        self.flowing()
        kept = self.chance.choice(self.cluster.workers)
        self.blow("SIGKILL of a worker")
        kill(kept.worker())

    def kill_worker_and_task(self) -> None:
        self.flowing()
        kept, task = self.owner()
        self.blow("SIGKILL of worker and task")
        self.kill_with_look(task, kept.worker())

    def kill_what_tasks_are_forked_from(self) -> None:
        self.flowing()
        kept, _ = self.owner()
        self.blow("SIGKILL of the process that tasks are forked from")
        kill(kept.zygote())

    def kill_a_task_that_starts(self) -> None:
        """Somewhere between its process's birth and its first records."""
        self.kill_the_task()
        known = {task.pid for kept in self.cluster.workers for task in kept.tasks(TASK)}
        new: list[Process] = []

        def look() -> bool:
            new[:] = [
                t for kept in self.cluster.workers for t in kept.tasks(TASK) if t.pid not in known
            ]
            return bool(new)

        await_true("new task", look, FLOW_S, self.why)
        time.sleep(self.chance.uniform(0, 0.8))
        self.blow("SIGKILL of a task that starts")
        kill(new[-1])

    def kill_a_worker_that_starts(self) -> None:
        kept = self.chance.choice(self.cluster.workers)
        self.flowing()
        before = kept.worker()
        self.blow("SIGKILL of a worker")
        kill(before)
        old = before.pid if before is not None else 0

        def back() -> bool:
            now = kept.worker()
            return now is not None and now.pid != old

        await_true("new worker", back, FLOW_S, self.why)
        time.sleep(self.chance.uniform(0, 2.0))
        self.blow("SIGKILL of a worker that starts")
        kill(kept.worker())

    # -- zombies --

    def freeze_worker_and_task(self) -> None:
        """As when a machine is suspended; both wake up and go on where they stood."""
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

    def freeze_the_task_and_kill_its_worker(self) -> None:
        """Nobody is left who would end it, and it has not heard that it has no worker."""
        self.until_zombie(self._freeze_the_task_and_kill_its_worker)

    def _freeze_the_task_and_kill_its_worker(self) -> bool:
        self.flowing()
        kept, task = self.settled_owner()
        self.blow("SIGSTOP of the task, whose worker is killed")
        epoch = self.epoch()
        signal_if_alive(task.pid, signal.SIGSTOP)
        kill(kept.worker())
        self.replaced(task, epoch)
        return signal_if_alive(task.pid, signal.SIGCONT) and self.ended(kept, task, None)

    def freeze_the_task(self) -> None:
        """Its worker does not wait for it to wake up."""
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
        """Its task must end by itself: it hears nothing more."""
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
        """That the brokers take the task's producer by."""
        return producer_epoch(self.broker.address, f"g-{TASK}")

    def transaction(self) -> tuple[str, tuple[int, int]]:
        """Its state at the coordinator, and whose it is, as `epoch`."""
        found = described_transaction(self.broker.address, f"g-{TASK}")
        return str(found.state.value), (int(found.producer_id), int(found.producer_epoch))

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

    def ended(self, kept: KeptWorker, zombie: Process, start: int | None) -> bool:
        """The zombie ends by itself; where somebody was left to hear it, it says why.

        Args:
            start: of its run in the worker's log; None: nobody was left.

        Returns:
            Whether it was one: not, if it had been asked to stop and had made its last commit.
        """
        await_true("end of the zombie", lambda: not zombie.alive(), 20, self.why)
        if start is None:
            self.ends["unheard"] += 1
            return True

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
        self.blow("SIGKILL of the broker")
        self.broker.kill()
        time.sleep(self.chance.uniform(0, 2.0))
        self.broker.start()

    def plan(self) -> list[Callable[[], None]]:
        """20 SIGKILLs, 10 zombies that wake up, 2 whose worker or whose task ends them, 2 kills of
        the broker, in an order of the seed's."""
        kills = [
            *[self.kill_the_task] * 2,
            *[self.kill_the_task_in_its_transaction] * 1,
            *[self.kill_what_tasks_are_forked_from] * 1,
            *[self.kill_its_worker] * 4,
            *[self.kill_worker_and_task] * 1,
            *[self.kill_a_worker] * 3,
            *[self.kill_a_task_that_starts] * 3,
            *[self.kill_a_worker_that_starts] * 1,
        ]
        zombies = [
            *[self.freeze_worker_and_task] * 7,
            *[self.freeze_the_task_and_kill_its_worker] * 3,
            *[self.freeze_the_task] * 1,
            *[self.freeze_the_worker] * 1,
        ]
        blows = [*kills, *zombies, *[self.kill_the_broker] * 2]
        self.chance.shuffle(blows)
        return blows


def delivers(kept: KeptWorker) -> bool:
    """Whether the worker's last word on the task is that it is RUNNING."""
    words = STATES.findall(kept.log.read_text(errors="replace"))
    return bool(words) and words[-1] == "RUNNING"


def run_start(kept: KeptWorker) -> int:
    """Where the task's last run begins in the worker's log."""
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
    say(f"{chaos.landed.total()} blows, {chaos.fenced} fenced, zombies ended {dict(chaos.ends)}")
    say(f"transactions of tasks that were killed: {dict(chaos.left)}")
    assert chaos.left["Ongoing"] > 0, chaos.left
    assert chaos.ends["fenced"] > 0, chaos.ends
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
