"""A service with workers inside it: docs/build/embedding.md goes through this.

`Store` is the world: two topics and a group, in memory. Put your database there. `Worker` gives
its `HerderHost` what happens, and has the ports that the host performs effects with. What a task
does is `Worker._work`. Connectors are those of `CONNECTORS`.
"""

import queue
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from headgate import (
    Coordinator,
    CoordinatorSettings,
    FencedError,
    Herder,
    HerderHost,
    HerderSettings,
    TransportError,
    Work,
    decode,
    decode_status,
)
from headgate import group_messages as g
from headgate import messages as m
from headgate import task_messages as t


def shards(tasks_max: int) -> list[Mapping[str, str]]:
    return [{"shard": str(n)} for n in range(tasks_max)]


CONNECTORS = {"Clicks": shards}
"""`connector.class` -> what makes the configs of its tasks."""
Records: TypeAlias = Sequence[tuple[str, bytes | None]]
LOOK_S = 0.02
CALL_MS = 30_000


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Store:
    """Two topics and a group, for the workers of this process. Every method may be called from any
    thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coordinator = Coordinator(CoordinatorSettings(initial_rebalance_delay_ms=0))
        self._configs: list[tuple[str, bytes | None]] = []
        self._statuses: list[tuple[str, bytes | None]] = []
        self._claim = ("", -1)
        self.workers: dict[str, Worker] = {}

    def claim(self, name: str, generation: int) -> None:
        with self._lock:
            if generation < self._claim[1]:
                raise FencedError(f"{self._claim[0]} leads since generation {self._claim[1]}")
            self._claim = (name, generation)

    def append(self, name: str, records: Records, *, privileged: bool) -> int:
        """All records or none; a leader that was overtaken is refused."""
        with self._lock:
            if privileged and self._claim[0] != name:
                raise FencedError(f"{self._claim[0]} leads")
            self._configs += records
            return len(self._configs)

    def write_statuses(self, records: Records) -> None:
        with self._lock:
            self._statuses += records

    def configs(self, start: int) -> list[tuple[str, bytes | None]]:
        with self._lock:
            return self._configs[start:]

    def statuses(self, start: int) -> list[tuple[str, bytes | None]]:
        with self._lock:
            return self._statuses[start:]

    def send(self, name: str, request: g.GroupRequest) -> None:
        with self._lock:
            new_id = uuid.uuid4().hex
            self._deliver(self._coordinator.handle(now_ms(), request, new_id), name)

    def tick(self) -> None:
        """Ends sessions and rounds whose time is over."""
        with self._lock:
            self._deliver(self._coordinator.tick(now_ms()), "")

    def _deliver(self, responses: list[g.GroupResponse], asked: str) -> None:
        """A member id is ``<client id>-<new id>``, and the client id is the worker's name here."""
        for response in responses:
            worker = self.workers.get(response.member_id.rpartition("-")[0] or asked)
            if worker is not None:
                worker.post(m.GroupAnswered(response))


class Worker:
    """One worker: the ports of its herder, its inbox, and who waits for an answer. `run` decides,
    on one thread; `post` and `call` are for all others."""

    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self._store = store
        settings = HerderSettings(
            worker_id=name,
            url=name,
            heartbeat_interval_ms=200,
            session_timeout_ms=5_000,
            rebalance_delay_ms_max=0,
        )
        self.herder = Herder(settings, now_ms(), wall_ms=time.time_ns() // 1_000_000)
        self._host = HerderHost(self.herder, ports=self, schedule=self, now_ms=now_ms)
        self._inbox: queue.SimpleQueue[m.Command] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(8, thread_name_prefix=name)
        self._calls: dict[str, Future[m.Result]] = {}
        self._stops: dict[str, threading.Event] = {}
        """By run: ends the task's thread."""
        self._classes: dict[tuple[str, int], str] = {}
        """`connector.class` of each run of a connector that was started here."""
        self._configs_read = self._statuses_read = 0
        store.workers[name] = self

    # -- from any thread --

    def post(self, command: m.Command) -> None:
        self._inbox.put(command)

    def ask(self, call: m.Call, hops: int = 0, timeout_ms: int = CALL_MS) -> m.Result:
        """What a REST layer of yours would do: ask, and wait for the answer.

        Raises:
            TimeoutError: this worker has not answered in time.
        """
        call_id, answer = uuid.uuid4().hex, Future[m.Result]()
        self._calls[call_id] = answer
        self.post(m.Called(call_id, call, hops, now_ms() + timeout_ms))
        return answer.result(timeout_ms / 1000)

    # -- the loop --

    def loop(self) -> None:
        """Returns after `Shutdown`, when nothing runs here and the group was left."""
        while not self.herder.done:
            try:
                command = self._inbox.get(timeout=LOOK_S)
            except queue.Empty:
                command = m.Tick()
            self._host.handle(command)
            for news in self._news():
                self._host.handle(news)
            self._store.tick()
        self._threads.shutdown(wait=False)

    def _news(self) -> Iterator[m.Command]:
        """What the topics have that this worker has not read."""
        yield from self._read_configs()
        yield from self._read_statuses()

    def _read_configs(self) -> list[m.Command]:
        start, records = self._configs_read, self._store.configs(self._configs_read)
        self._configs_read += len(records)
        events = (decode(n, key, value) for n, (key, value) in enumerate(records, start))
        return [m.ConfigRead(tuple(events))] if records else []

    def _read_statuses(self) -> list[m.Command]:
        records = self._store.statuses(self._statuses_read)
        self._statuses_read += len(records)
        read = tuple((key, decode_status(key, value)) for key, value in records)
        return [m.StatusRead(read)] if records else []

    # -- the schedule --

    def run(self, work: Work) -> Sequence[m.Command]:
        """What may wait for others goes to a thread: the loop must go on hearing the group."""
        if not isinstance(work.effects[0], m.CallPeer):
            return work.perform()
        self._threads.submit(self._on_thread, work)
        return ()

    def _on_thread(self, work: Work) -> None:
        try:
            answers = work.perform()
        except Exception as error:  # unanswered, it would keep waiting whoever needs the answer
            answers = work.failed(f"{type(error).__name__}: {error}")
        for answer in answers:
            self.post(answer)

    # -- the ports: the store --

    def claim(self, generation: int) -> None:
        self._store.claim(self.name, generation)

    def append(self, records: Records, *, privileged: bool) -> int:
        return self._store.append(self.name, records, privileged=privileged)

    def read_to_end(self, token: int, *, statuses: bool) -> Sequence[m.Command]:
        read = self._read_statuses() if statuses else ()
        return [*self._read_configs(), *read, m.ConfigEndRead(token)]

    def write_statuses(self, statuses: Sequence[m.WriteStatus]) -> None:
        self._store.write_statuses([(status.key, status.value) for status in statuses])

    def await_statuses(self, token: int) -> Sequence[m.Command]:
        return [m.StatusesWritten(token)]

    def send_group(self, request: g.GroupRequest) -> None:
        self._store.send(self.name, request)

    # -- calls and others --

    def answer(self, call_id: str, result: m.Result) -> None:
        self._calls.pop(call_id).set_result(result)

    def call_peer(self, url: str, token: int, call: m.Call, hops: int, ms: int) -> m.Result:
        try:
            return self._store.workers[url].ask(call, hops, ms)
        except (KeyError, TimeoutError) as error:
            raise TransportError(f"does not answer: {error}") from error

    def make_session_key(self, key_size: int) -> tuple[bytes, int]:
        return secrets.token_bytes(key_size // 8), time.time_ns() // 1_000_000

    def fence(self, connector: str, transactional_ids: Sequence[str]) -> None:
        """These tasks have no transactional producers."""

    def set_logger_level(self, logger: str, level: str) -> None:
        """There is no log."""

    def read_offsets(self, effect: m.ReadConnectorOffsets) -> m.ConnectorOffsetsRead:
        return m.ConnectorOffsetsRead(effect.token, failure=NO_OFFSETS)

    def alter_offsets(self, effect: m.AlterConnectorOffsets) -> m.ConnectorOffsetsAltered:
        return m.ConnectorOffsetsAltered(effect.token, failure=NO_OFFSETS)

    def give_up_alteration(self, token: int) -> m.Failure | None:
        return None

    # -- connectors --

    def validate(self, name: str, config: Mapping[str, str | None]) -> tuple[str, ...]:
        return () if config.get("connector.class") in CONNECTORS else ("no such class",)

    def start_connector(self, effect: m.StartConnector) -> m.ConnectorStarted:
        self._classes[effect.connector, effect.run] = effect.config["connector.class"] or ""
        return m.ConnectorStarted(effect.connector, effect.run)

    def stop_connector(self, effect: m.StopConnector) -> m.ConnectorStopped:
        return m.ConnectorStopped(effect.connector, effect.run)

    def generate_task_configs(self, effect: m.GenerateTaskConfigs) -> m.TaskConfigsGenerated:
        """Connectors of others belong on threads: one for each, since its work has a lane."""
        divide = CONNECTORS[self._classes[effect.connector, effect.run]]
        configs = tuple(divide(effect.tasks_max))
        return m.TaskConfigsGenerated(effect.token, effect.connector, configs)

    # -- tasks, each on a thread of its own --

    def start_task(self, spec: t.TaskSpec) -> None:
        self._stops[spec.run] = threading.Event()
        threading.Thread(target=self._task, args=(spec,), daemon=True).start()

    def send_task(self, run: str, command: t.TaskCommand) -> None:
        """Pause and resume."""

    def stop_task(self, run: str, grace_ms: int) -> None:
        if (stop := self._stops.get(run)) is not None:
            stop.set()

    def _task(self, spec: t.TaskSpec) -> None:
        """Every run ends in `TaskEnded` and then `TaskReleased`, whatever happens."""
        self.post(m.TaskReported(spec.run, t.TaskRunning()))
        ended = t.TaskEnded(t.TaskOutcome.STOPPED)
        try:
            self._work(spec, self._stops[spec.run])
        except Exception as error:  # the task's own code
            ended = t.TaskEnded(t.TaskOutcome.FAILED, f"{type(error).__name__}: {error}")
        del self._stops[spec.run]
        self.post(m.TaskReported(spec.run, ended))
        self.post(m.TaskReported(spec.run, t.TaskReleased()))

    def _work(self, spec: t.TaskSpec, stop: threading.Event) -> None:
        stop.wait()  # here a task of yours does its share, given by spec.task_config


NO_OFFSETS = m.Failure(m.ErrorKind.BAD_REQUEST, "this service keeps no offsets")


# -- the service --


def start(name: str, store: Store) -> tuple[Worker, threading.Thread]:
    worker = Worker(name, store)
    thread = threading.Thread(target=worker.loop, daemon=True)
    thread.start()
    return worker, thread


def owners(worker: Worker) -> dict[str, str]:
    """Task -> worker, of the tasks that run."""
    result = worker.ask(m.DescribeStatus("clicks"))
    if isinstance(result, m.Failure) or not isinstance(result.value, dict):
        return {}
    tasks = result.value["tasks"]
    return {f"clicks-{one['id']}": one["worker_id"] for one in tasks if one["state"] == "RUNNING"}


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + CALL_MS / 1000
    while not what():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(LOOK_S)


def main() -> None:
    store = Store()
    (one, _), (two, two_thread) = start("one", store), start("two", store)
    print(type(one.ask(m.CreateConnector("none", {"connector.class": "Nothing"}))).__name__)
    config = {"connector.class": "Clicks", "tasks.max": "2"}
    print(type(two.ask(m.CreateConnector("clicks", config))).__name__)
    wait_for(lambda: set(owners(one).values()) == {"one", "two"} and len(owners(one)) == 2)
    print("each worker runs a task:", *sorted(owners(one)))
    two.post(m.Shutdown())
    two_thread.join()
    wait_for(lambda: owners(one) == {"clicks-0": "one", "clicks-1": "one"})
    print("after the other has left:", owners(one))


if __name__ == "__main__":
    main()
