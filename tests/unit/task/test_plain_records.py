"""The fast path for polled records does what the loop over records does."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.task.body_bench import BodyBench, source_offsets
from support.task.scripted_source import record, run_dry, scripted
from support.task.transforms import Keeps

from headgate.connector.api import DataError, OffsetUpdate, SkippedRecord, SourceRecord
from headgate.connector.transforms import by_topic, make_transforms
from headgate.connector.transforms.routers import RegexRouter
from headgate.ports import ConsumerRecord, ProducerRecord
from headgate_embedded import open_transport, transport_settings
from headgate_runtime.tasks import plain_records
from headgate_runtime.tasks.plain_records import PlainRecords

ENDS = {
    "skipped": SkippedRecord({"file": "a"}, {"n": 1}, "a line"),
    "offset": OffsetUpdate({"file": "a"}, {"n": 1}),
    "nothing": None,
    "headers": replace(record(1), headers=(("h", "x"),)),
    "new topic": replace(record(1), topic="new"),
    "no topic": replace(record(1), topic=None),  # type: ignore[arg-type]
    "before 1970": replace(record(1), timestamp_ms=-1),
    "half a millisecond": replace(record(1), timestamp_ms=1.5),  # type: ignore[arg-type]
    "no time": replace(record(1), timestamp_ms="now"),  # type: ignore[arg-type]
    "bad value": replace(record(1), value=b"bad"),
    "bad key": replace(record(1), key=b"bad"),
}
"""What needs more than its converters, each by itself."""


def converted(_topic: str, value: Any, _schema: Any) -> bytes | None:
    if value == b"bad":
        raise DataError("bad")
    return None if value is None else str(value).encode()


def no_headers(*_: Any) -> Any:
    raise AssertionError("a record without headers has none to be converted")


def plain(n: int) -> SourceRecord:
    """Records with and without a key, a value, a time and a partition."""
    key, time_ms = (None, f"k{n}")[n % 2], (None, n)[n // 2 % 2]
    found = replace(record(n), key=key, timestamp_ms=time_ms, partition=(None, 0)[n // 4 % 2])
    return replace(found, topic=("t", "u")[n // 8 % 2], value=(found.value, None)[n // 16 % 2])


items = st.lists(st.integers(0, 63).map(plain) | st.sampled_from(list(ENDS.values())))


@given(items)
def test_all_up_to_the_first_that_needs_more_are_converted(polled: list[Any]) -> None:
    end = next((n for n, item in enumerate(polled) if item in ENDS.values()), len(polled))
    batch: list[Any] = ["before"]
    sources: list[Any] = ["before"]
    way = PlainRecords((converted, converted, no_headers), [], {"t", "u"})
    assert way.convert(polled, batch, sources) == polled[end:]
    assert sources == ["before", *polled[:end]]
    assert batch[1:] == [
        ProducerRecord(
            each.topic,
            each.partition,
            converted("", each.key, None),
            converted("", each.value, None),
            (),
            each.timestamp_ms,
        )
        for each in polled[:end]
    ]


CHAINS: dict[str, dict[str, str]] = {
    "none": {},
    "route and mark": {
        "transforms": "mark,route",
        "transforms.mark.type": "InsertHeader",
        "transforms.mark.header": "origin",
        "transforms.mark.value.literal": "12",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "new-$1",
    },
    "two topics become one": {
        "transforms": "route",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "[tu]",
        "transforms.route.replacement": "new",
    },
    "a router that fails": {
        "transforms": "route",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "u",
        "transforms.route.replacement": "$7",
    },
    "predicates": {
        "transforms": "drop,mark,again,bare",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "u",
        "transforms.mark.type": "InsertHeader",
        "transforms.mark.header": "origin",
        "transforms.mark.value.literal": "[1, 2]",
        "transforms.again.type": "InsertHeader",
        "transforms.again.header": "again",
        "transforms.again.value.literal": "x",
        "transforms.again.predicate": "marked",
        "transforms.bare.type": "DropHeaders",
        "transforms.bare.headers": "origin",
        "transforms.bare.predicate": "marked",
        "transforms.bare.negate": "true",
        "predicates": "u,marked",
        "predicates.u.type": "TopicNameMatches",
        "predicates.u.pattern": "u",
        "predicates.marked.type": "HasHeaderKey",
        "predicates.marked.name": "origin",
    },
}
"""Chains that look at topic and headers alone."""


@pytest.mark.parametrize("name", CHAINS)
def test_the_quick_way_sends_what_the_loop_over_records_does(name: str, tmp_path: Path) -> None:
    usable = ("skipped", "offset", "headers", "new topic")
    numbered: list[Any] = [plain(n) for n in range(32)]
    for n, found in enumerate(usable):
        numbered.insert(5 * n + 3, ENDS[found])
    bad: Any = object()
    numbered.insert(2, replace(record(1), value=bad))
    numbered.insert(20, replace(record(1), key=bad))
    batches = [
        [
            replace(each, source_offset={"n": n})
            for n, each in enumerate(numbered, start=turn * len(numbered))
        ]
        for turn in range(3)
    ]
    config = {
        "errors.tolerance": "all",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
    }
    sent = {}
    for way, more in {"quick": [], "loop": [Keeps()]}.items():
        chain = [*make_transforms(CHAINS[name]), *more]
        assert by_topic(chain) is (way == "quick")
        bench = BodyBench(tmp_path / way, scripted(*batches), config, chain=chain)
        run_dry(bench)
        bench.stop()
        sent[way] = (*read(tmp_path / way), bench.progress.skipped)
        assert source_offsets(tmp_path / way)
    assert sent["quick"] == sent["loop"]
    if name == "none":
        assert sent["quick"][-1] == 9  # in each batch the skipped record and two that are refused


def test_a_chain_is_applied_once_for_each_topic() -> None:
    class Counts(RegexRouter):
        BY_TOPIC = True
        calls = 0

        def apply(self, record: Any) -> Any:
            Counts.calls += 1
            return super().apply(record)

    router = Counts()
    router.configure({"regex": "(.)", "replacement": "$1$1"})
    way = PlainRecords((converted, converted, no_headers), [router], {"tt", "uu"})
    batch: list[Any] = []
    assert way.possible
    assert not way.convert([plain(n) for n in range(32)], batch, [])
    assert {sent.topic for sent in batch} == {"tt", "uu"}
    assert Counts.calls == 2


def test_ways_of_many_topics_are_not_kept_for_ever() -> None:
    topics = {f"t{n}" for n in range(plain_records.WAYS_MAX + 10)}
    way = PlainRecords((converted, converted, no_headers), [], topics)
    batch: list[Any] = []
    assert not way.convert([replace(record(1), topic=topic) for topic in topics], batch, [])
    assert {sent.topic for sent in batch} == topics
    assert len(way._ways) <= plain_records.WAYS_MAX


def test_a_subclass_of_a_router_may_look_at_more() -> None:
    class ByValue(RegexRouter):
        pass

    router = ByValue()
    router.configure({"regex": "t", "replacement": "u"})
    assert not by_topic([router])
    assert not PlainRecords((converted, converted, no_headers), [router], {"u"}).possible


def read(folder: Path) -> tuple[list[tuple[object, ...]], dict[bytes, bytes | None]]:
    """Return the records of the topics, without offsets and the log's timestamps, and the source
    offsets."""
    transport = open_transport(transport_settings(folder))
    rows: list[ConsumerRecord] = []
    ends = transport.record_log.end_offsets(["t", "u", "new", "new-t", "new-u", "new-new"])
    for (topic, partition), end in sorted(ends.items()):
        rows += transport.record_log.read(topic, partition, 0, end, end)
    transport.close()
    return [(row.topic, row.key, row.value, row.headers) for row in rows], source_offsets(folder)
