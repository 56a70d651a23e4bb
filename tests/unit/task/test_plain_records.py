"""The quick way of polled records, beside the loop that serves everything."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.task.body_bench import BodyBench, source_offsets
from support.task.scripted_source import record, run_dry, scripted
from support.task.transforms import Keeps

from headgate.connector.api import DataError, OffsetUpdate, SkippedRecord, SourceRecord
from headgate.ports import ConsumerRecord, ProducerRecord
from headgate_embedded import open_transport, transport_settings
from headgate_runtime.tasks.plain_records import convert_plain

ENDS = {
    "skipped": SkippedRecord({"file": "a"}, {"n": 1}, "a line"),
    "offset": OffsetUpdate({"file": "a"}, {"n": 1}),
    "nothing": None,
    "headers": replace(record(1), headers=(("h", "x"),)),
    "new topic": replace(record(1), topic="new"),
    "no topic": replace(record(1), topic=None),  # type: ignore[arg-type]
    "before 1970": replace(record(1), timestamp_ms=-1),
    "no time": replace(record(1), timestamp_ms="now"),  # type: ignore[arg-type]
    "bad value": replace(record(1), value=b"bad"),
    "bad key": replace(record(1), key=b"bad"),
}
"""What needs more than its converters, each by itself."""


def converted(_topic: str, value: Any, _schema: Any) -> bytes | None:
    if value == b"bad":
        raise DataError("bad")
    return None if value is None else str(value).encode()


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
    way = (converted, converted, None)
    assert convert_plain(polled, batch, sources, way, {"t", "u"}) == polled[end:]
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


def test_a_task_without_transforms_sends_what_one_with_a_transform_does(tmp_path: Path) -> None:
    usable = ("skipped", "offset", "headers", "new topic")
    numbered: list[Any] = [plain(n) for n in range(32)]
    for n, name in enumerate(usable):
        numbered.insert(5 * n + 3, ENDS[name])
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
    found = {}
    for name, chain in {"plain": [], "loop": [Keeps()]}.items():
        bench = BodyBench(tmp_path / name, scripted(*batches), config, chain=chain)
        run_dry(bench)
        bench.stop()
        found[name] = (*read(tmp_path / name), bench.progress.skipped)
        assert source_offsets(tmp_path / name)
    assert found["plain"] == found["loop"]
    assert found["plain"][-1] == 9  # in each batch the skipped record and two that are refused


def read(folder: Path) -> tuple[list[tuple[object, ...]], dict[bytes, bytes | None]]:
    """What stands in the topics, but for the times that the log has given, and the offsets."""
    transport = open_transport(transport_settings(folder))
    rows: list[ConsumerRecord] = []
    ends = transport.record_log.end_offsets(["t", "u", "new"])
    for (topic, partition), end in sorted(ends.items()):
        rows += transport.record_log.read(topic, partition, 0, end, end)
    transport.close()
    return [(row.topic, row.key, row.value, row.headers) for row in rows], source_offsets(folder)
