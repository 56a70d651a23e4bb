"""Topics of dead letters as tests read them, and a log whose producers a test can hold up."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from headgate.ports import Ack, ConsumerRecord, ProducerRecord, TransportError
from headgate.task.messages import TaskSpec
from headgate_embedded import open_transport, transport_settings

T = TypeVar("T", bound=Hashable)
LETTERS = "errors.deadletterqueue.topic.name"
HEADERS = "errors.deadletterqueue.context.headers.enable"


def records_of(folder: Path, topic: str) -> list[ConsumerRecord]:
    """Return the committed records of `topic`, partition by partition."""
    with closing(open_transport(transport_settings(folder))) as transport:
        log = transport.record_log
        found: list[ConsumerRecord] = []
        for (name, part), end in sorted(log.end_offsets([topic]).items()):
            while end and (not found or found[-1].partition != part or found[-1].offset < end - 1):
                at = found[-1].offset + 1 if found and found[-1].partition == part else 0
                found += log.read(name, part, at, end, 1_000)
        return found


def headers_of(record: ConsumerRecord) -> Mapping[str, str | None]:
    """Return the headers as text."""
    return {name: None if value is None else value.decode() for name, value in record.headers}


def assert_at_least_once(found: Iterable[T], wanted: Iterable[T], kills: int) -> None:
    """Assert that a sink's dead letters are the wanted ones and no others. Some may be there more
    than once, since a sink promises at least once.

    Args:
        kills: number of kills of tasks and workers. After each, a letter may come once more.
    """
    counts, expected = Counter(found), Counter(wanted)
    assert set(expected.values()) == {1}, "two letters that cannot be told apart are wanted"
    missing, foreign = expected.keys() - counts.keys(), counts.keys() - expected.keys()
    assert not missing and not foreign, (list(missing)[:3], list(foreign)[:3])
    assert max(counts.values()) <= 1 + kills, counts.most_common(3)


class _Producer:
    """A producer that takes records. While `held` is set, none is acknowledged."""

    def __init__(
        self, inner: Any, held: threading.Event, tried: threading.Event, quiet: bool
    ) -> None:
        self._inner, self._held, self._tried, self._quiet = inner, held, tried, quiet

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def send(self, records: Sequence[ProducerRecord]) -> None:
        self._inner.send(records)

    def acks(self) -> Sequence[Ack]:
        if self._held.is_set():
            self._tried.set()
            if self._quiet:
                return ()
            raise TransportError("the log is held up by the test")
        found: Sequence[Ack] = self._inner.acks()
        return found


class HeldLog:
    """The `open_transport` of a body whose producers the test holds up."""

    def __init__(self, *, quiet: bool = False) -> None:
        """If `quiet`, a held producer has no acknowledgement yet. Otherwise it raises that no
        broker answers."""
        self._quiet = quiet
        self.held = threading.Event()
        self.tried = threading.Event()
        """A producer was asked for acknowledgements while the log was held."""

    def __call__(self, spec: TaskSpec) -> Any:
        transport = open_transport(spec.transport)
        made = transport.record_log.producer

        def producer(*args: Any) -> Any:
            return _Producer(made(*args), self.held, self.tried, self._quiet)

        transport.record_log.producer = producer  # type: ignore[method-assign]
        return transport
