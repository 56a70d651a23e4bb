"""A service with workers inside it: docs/build/embedding.md goes through this.

`Store` is the world: two topics and a group, here in memory. Put your database there. `Host` is one
worker: it gives its herder what happens, and performs what the herder answers. What a task does is
`Host._work`. Connectors are those of `CONNECTORS`.
"""

import queue
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import assert_never

from headgate import Coordinator, CoordinatorSettings, Herder, HerderSettings, decode, decode_status
from headgate import group_messages as g
from headgate import messages as m
from headgate import task_messages as t


def shards(tasks_max: int) -> list[Mapping[str, str]]:
    return [{"shard": str(n)} for n in range(tasks_max)]


CONNECTORS = {"Clicks": shards}
"""`connector.class` -> what makes the configs of its tasks."""
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
        self.hosts: dict[str, Host] = {}

    def claim(self, name: str, generation: int) -> bool:
        with self._lock:
            if generation < self._claim[1]:
                return False
            self._claim = (name, generation)
            return True

    def append(self, name: str, effect: m.AppendConfig) -> m.Command:
        """All records or none; a leader that was overtaken is refused."""
        with self._lock:
            if effect.privileged and self._claim[0] != name:
                return m.ConfigAppendFailed(effect.token, "another worker leads", fenced=True)
            self._configs += effect.records
            return m.ConfigAppended(effect.token, len(self._configs))

    def write_status(self, key: str, value: bytes | None) -> None:
        with self._lock:
            self._statuses.append((key, value))

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
            host = self.hosts.get(response.member_id.rpartition("-")[0] or asked)
            if host is not None:
                host.post(m.GroupAnswered(response))


class Host:
    """One worker. `run` decides, on one thread; `post` and `call` are for all others."""

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
        self._inbox: queue.SimpleQueue[m.Command] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(8, thread_name_prefix=name)
        self._calls: dict[str, Future[m.Result]] = {}
        self._stops: dict[str, threading.Event] = {}
        """By run: ends the task's thread."""
        self._classes: dict[tuple[str, int], str] = {}
        """`connector.class` of each run of a connector that was started here."""
        self._configs_read = self._statuses_read = 0
        store.hosts[name] = self

    # -- from any thread --

    def post(self, command: m.Command) -> None:
        self._inbox.put(command)

    def call(self, call: m.Call, hops: int = 0, timeout_ms: int = CALL_MS) -> m.Result:
        """What a REST layer of yours would do: ask, and wait for the answer.

        Raises:
            TimeoutError: this worker has not answered in time.
        """
        call_id, answer = uuid.uuid4().hex, Future[m.Result]()
        self._calls[call_id] = answer
        self.post(m.Called(call_id, call, hops, now_ms() + timeout_ms))
        return answer.result(timeout_ms / 1000)

    # -- the loop --

    def run(self) -> None:
        """Returns after `Shutdown`, when nothing runs here and the group was left."""
        while not self.herder.done:
            try:
                command = self._inbox.get(timeout=LOOK_S)
            except queue.Empty:
                command = m.Tick()
            self._handle(command)
            for news in self._news():
                self._handle(news)
            self._store.tick()
        self._threads.shutdown(wait=False)

    def _handle(self, command: m.Command) -> None:
        pending = [command]
        while pending:
            for effect in self.herder.handle(now_ms(), pending.pop(0)):
                pending += self._perform(effect)

    def _news(self) -> Iterator[m.Command]:
        """What the topics have that this worker has not read."""
        yield from self._read_configs()
        records = self._store.statuses(self._statuses_read)
        self._statuses_read += len(records)
        if records:
            yield m.StatusRead(tuple((key, decode_status(key, value)) for key, value in records))

    def _read_configs(self) -> list[m.Command]:
        start, records = self._configs_read, self._store.configs(self._configs_read)
        self._configs_read += len(records)
        events = (decode(n, key, value) for n, (key, value) in enumerate(records, start))
        return [m.ConfigRead(tuple(events))] if records else []

    def _in_thread(self, work: Callable[[], m.Command]) -> None:
        """For what may wait for others: the loop must go on hearing the group. `work` never raises:
        an effect that is not answered keeps waiting whoever needs its answer."""
        self._threads.submit(lambda: self.post(work()))

    def _call_peer(self, effect: m.CallPeer) -> m.Command:
        try:
            result = self._store.hosts[effect.url].call(effect.call, effect.hops, effect.timeout_ms)
        except (KeyError, TimeoutError) as error:
            result = m.Failure(m.ErrorKind.TIMEOUT, f"{effect.url} does not answer: {error}")
        return m.PeerAnswered(effect.token, result)

    # -- effects: returns the answers that are known at once --

    def _perform(self, effect: m.Effect) -> list[m.Command]:
        match effect:
            case m.SendGroup(request):
                self._store.send(self.name, request)
            case m.ClaimLeadership(generation):
                claimed = self._store.claim(self.name, generation)
                return [m.LeadershipClaimed(generation, None if claimed else "overtaken")]
            case m.AppendConfig():
                return [self._store.append(self.name, effect)]
            case m.ReadConfigToEnd(token):
                return [*self._read_configs(), m.ConfigEndRead(token)]
            case m.WriteStatus(key, value):
                self._store.write_status(key, value)
            case m.Answer(call_id, result):
                self._calls.pop(call_id).set_result(result)
            case m.CallPeer():
                self._in_thread(lambda: self._call_peer(effect))
            case m.MakeSessionKey(token, _, size):
                secret = secrets.token_bytes(size // 8)
                return [m.SessionKeyMade(token, secret, time.time_ns() // 1_000_000)]
            case m.FenceProducers(token):
                return [m.ProducersFenced(token)]  # these tasks have no transactional producers
            case m.ApplyLoggerLevel() | m.GiveUpAlteration():
                pass
            case m.ReadConnectorOffsets(token):
                return [m.ConnectorOffsetsRead(token, failure=NO_OFFSETS)]
            case m.AlterConnectorOffsets(token):
                return [m.ConnectorOffsetsAltered(token, failure=NO_OFFSETS)]
            case m.StartTask(spec):
                self._stops[spec.run] = threading.Event()
                threading.Thread(target=self._task, args=(spec,), daemon=True).start()
            case m.StopTaskBy(run):
                if (stop := self._stops.get(run)) is not None:
                    stop.set()
            case m.SendTask():
                pass  # pause and resume
            case _:
                return self._perform_on_connector(effect)
        return []

    def _perform_on_connector(
        self,
        effect: m.ValidateConfig | m.StartConnector | m.StopConnector | m.GenerateTaskConfigs,
    ) -> list[m.Command]:
        match effect:
            case m.ValidateConfig(token, _, config):
                known = config.get("connector.class") in CONNECTORS
                return [m.ConfigValidated(token, () if known else ("no such class",))]
            case m.StartConnector(connector, run, config):
                self._classes[connector, run] = config["connector.class"] or ""
                return [m.ConnectorStarted(connector, run)]
            case m.StopConnector(connector, run):
                return [m.ConnectorStopped(connector, run)]
            case m.GenerateTaskConfigs(token, connector, run, tasks_max):
                divide = CONNECTORS[self._classes[connector, run]]
                self._in_thread(lambda: _divided(token, connector, divide, tasks_max))
            case _:
                assert_never(effect)
        return []

    # -- a task, on a thread of its own --

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


def _divided(
    token: int, connector: str, divide: Callable[[int], list[Mapping[str, str]]], tasks_max: int
) -> m.Command:
    try:
        return m.TaskConfigsGenerated(token, connector, tuple(divide(tasks_max)))
    except Exception as error:  # the connector's own code
        return m.TaskConfigsGenerated(token, connector, error=f"{type(error).__name__}: {error}")


NO_OFFSETS = m.Failure(m.ErrorKind.BAD_REQUEST, "this service keeps no offsets")


# -- the service --


def start(name: str, store: Store) -> tuple[Host, threading.Thread]:
    host = Host(name, store)
    thread = threading.Thread(target=host.run, daemon=True)
    thread.start()
    return host, thread


def owners(host: Host) -> dict[str, str]:
    """Task -> worker, of the tasks that run."""
    result = host.call(m.DescribeStatus("clicks"))
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
    print(type(one.call(m.CreateConnector("none", {"connector.class": "Nothing"}))).__name__)
    config = {"connector.class": "Clicks", "tasks.max": "2"}
    print(type(two.call(m.CreateConnector("clicks", config))).__name__)
    wait_for(lambda: set(owners(one).values()) == {"one", "two"} and len(owners(one)) == 2)
    print("each worker runs a task:", *sorted(owners(one)))
    two.post(m.Shutdown())
    two_thread.join()
    wait_for(lambda: owners(one) == {"clicks-0": "one", "clicks-1": "one"})
    print("after the other has left:", owners(one))


if __name__ == "__main__":
    main()
