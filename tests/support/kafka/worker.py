"""`headgate worker` on Kafka inside this process, without its signals, so that a test can reach
between its parts."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import javaproperties
from support.kafka.cluster import await_true

from headgate.ports import Fencer
from headgate_runtime.command.worker import (
    Grpc,
    Stop,
    checked_file,
    listening,
    made_worker,
    reach_brokers,
    serving_grpc,
)
from headgate_runtime.config.settings import DISTRIBUTED
from headgate_runtime.transports.select import TaskTransport, open_task_transport
from headgate_runtime.worker.loop import Worker
from local_kafka.java_connect import Rest, defaults


class HeldFencer:
    """A fencer that notes what it is asked to fence, and waits while the test's gate is shut."""

    def __init__(self, inner: Fencer) -> None:
        self._inner = inner
        self.asked: list[tuple[str, ...]] = []
        self.gate = threading.Event()
        self.gate.set()

    def fence(self, transactional_ids: Sequence[str]) -> None:
        self.asked.append(tuple(transactional_ids))
        assert self.gate.wait(60), "the test has forgotten the gate"
        self._inner.fence(transactional_ids)


@dataclass
class KafkaWorker:
    worker: Worker
    rest: Rest
    url: str
    fencer: HeldFencer
    grpc: str = ""
    """Address of the worker's gRPC API. Empty: it has none."""

    @property
    def leads(self) -> bool:
        view = self.worker.herder.view()
        return view.leader != "" and view.leader == view.member_id

    @property
    def pending(self) -> tuple[str, ...]:
        return tuple(self.worker.herder.view().pending)

    def task_transport(self, connector: str, config: Mapping[str, str]) -> TaskTransport:
        """Open the log as a source task of the connector would."""
        return open_task_transport(
            self.worker.config.transport,
            config,
            connector=connector,
            kind="source",
            exactly_once=True,
        )


@contextlib.contextmanager
def kafka_worker(folder: Path, address: str, group: str, **more: str) -> Iterator[KafkaWorker]:
    """Run a member of `group` inside the block, with tasks on threads and exactly-once on.

    `more` are properties, with ``_`` for each dot.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "worker.properties"
    text = "org.apache.kafka.connect.storage.StringConverter"
    properties: dict[str, Any] = {
        **defaults(group, "http://127.0.0.1:0"),
        "bootstrap.servers": address,
        "group.id": group,
        "headgate.task.runner": "thread",
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        "key.converter": text,
        "value.converter": text,
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    del properties["plugin.discovery"]
    path.write_text(javaproperties.dumps(properties, timestamp=False))
    file = checked_file(str(path), DISTRIBUTED)
    with contextlib.ExitStack() as stack:
        rest = listening(file, stack)
        grpc = serving_grpc(file, rest, stack)
        file, reached = reach_brokers(file, Stop())
        rest.root["kafka_cluster_id"] = reached.cluster_id
        worker = made_worker(file, rest, grpc, {}, reached.config_topic)
        fencer = worker.transport.fencer = HeldFencer(worker.transport.fencer)
        rest.serve(worker)
        grpc.serve(worker)

        def ready() -> None:
            rest.service.ready()
            grpc.ready()

        thread = threading.Thread(
            target=worker.run, args=(ready,), kwargs={"stopping": grpc.stopping}
        )
        thread.start()
        client = Rest(rest.service.url.rstrip("/"))
        bound = grpc._server.bound if isinstance(grpc, Grpc) else ()
        made = KafkaWorker(worker, client, rest.service.url, fencer, *map(str, bound[:1]))
        try:
            await_true("member", lambda: worker.herder.view().settled, 30)
            yield made
        finally:
            fencer.gate.set()
            worker.stop()
            thread.join()
            client.close()
