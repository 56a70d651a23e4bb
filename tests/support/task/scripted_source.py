"""A source task that gives the batches that a test has written down."""

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer
from support.task.body_bench import BodyBench

from headgate.connector.api import SourceItem, SourceRecord, SourceTask

KEY = b'["c",{"file":"a"}]'
Batch = list[SourceItem]


def record(n: int, value: Any = None) -> SourceRecord:
    return SourceRecord({"file": "a"}, {"n": n}, "t", f"{n}" if value is None else value)


class Scripted(SourceTask):
    """A task that gives the batches of its class, from the committed offset on."""

    batches: list[Batch]
    began_after: int
    commits: int

    def start(self, config: Mapping[str, str]) -> None:
        found = self.context.offsets.offset({"file": "a"})
        type(self).began_after = 0 if found is None else found["n"]
        type(self).commits = 0
        self._left = list(self.batches)

    def poll(self) -> "Iterable[SourceItem] | None":
        if self._left:
            return self._left.pop(0)
        self.context.wait(0.02)
        return None

    def commit(self) -> None:
        type(self).commits += 1


def scripted(*batches: Batch) -> type[Scripted]:
    return type("Given", (Scripted,), {"batches": list(batches)})


def run_dry(bench: BodyBench) -> None:
    bench.start().until(lambda: bench.progress.idle or bench.ended)


def let_a_bare_error_out() -> None:
    """Raise what confluent-kafka raises when its own code fails within a callback. It is no
    `Exception`, so no clause with a name catches it."""
    client = Producer({"bootstrap.servers": "", "message.timeout.ms": 1, "log_level": 0})
    client.produce("t", b"v", on_delivery=lambda *_: client.init_transactions())
    client.flush(10)
