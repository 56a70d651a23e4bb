"""A chain of transforms makes of a batch the records that it makes of the batch's rows one by one:
values, schemas, keys, headers, topics, what is dropped, and what fails with which text."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from headgate.connector.api import SinkRecord, SourceRecord, Transform
from headgate.connector.batches import RowNumbers, RowOffsets, SinkBatch, SourceBatch
from headgate.connector.converters import CONVERTERS, SimpleHeaderConverter, TaskConverters
from headgate.connector.schema import STRING
from headgate.connector.text_converters import TypedConverter
from headgate.connector.transforms import (
    make_transforms,
    takes_rows_at_once,
    transform_sink,
    transform_source,
)
from headgate.ports import ConsumerRecord
from headgate_arrow import arrow_types, rows
from headgate_arrow.batch_chain import BatchChain
from headgate_runtime.tasks.source_batches import DroppedBatch, ReadyBatch, SourceBatches

PLACE = {"file": "a"}
TIME_MS = 1_704_067_200_123
HEADERS = (("file", "a"), ("at", RowNumbers(range(100, 200))))

# -- batches --

TEXTS = st.sampled_from(["", "a", "true", "TRUE", "12", "-7", " 3", "1e3", "300", "x" * 9, "é"])
FLOATS = st.floats() | st.integers(-300, 300).map(lambda number: number / 8)
MOMENTS = st.integers(-(10**12), 10**13)
_NESTED = pa.struct(
    [
        pa.field("n", pa.int32()),
        pa.field("s", pa.string()),
        pa.field("in", pa.struct([pa.field("x", pa.int64()), pa.field("l", pa.list_(pa.int8()))])),
    ]
)


def whole(bits: int) -> st.SearchStrategy[int]:
    """Small ones and those near the ends, too."""
    most = (1 << bits - 1) - 1
    return st.integers(-most - 1, most) | st.integers(-3, 3) | st.sampled_from([most, -most - 1])


def moments(kind: Any) -> tuple[Any, st.SearchStrategy[Any]]:
    return kind, MOMENTS.map(lambda ms: pa.scalar(ms, pa.int64()).cast(kind))


DECIMALS = st.integers(-(10**9), 10**9).map(lambda number: Decimal(number).scaleb(-2))
TYPES: Sequence[tuple[Any, st.SearchStrategy[Any]]] = (
    (pa.bool_(), st.booleans()),
    (pa.int8(), whole(8)),
    (pa.int16(), whole(16)),
    (pa.int32(), whole(32)),
    (pa.int64(), whole(64)),
    (pa.uint8(), st.integers(0, 255)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), FLOATS),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    (pa.binary(), st.binary(max_size=4)),
    (pa.decimal128(12, 2), DECIMALS),
    (pa.date32(), st.dates()),
    (pa.time32("ms"), st.integers(0, 86_399_999).map(lambda ms: pa.scalar(ms, pa.time32("ms")))),
    moments(pa.timestamp("ms", "UTC")),
    (pa.timestamp("ns", "UTC"), st.integers(-(10**18), 10**18)),
    (pa.list_(pa.int32()), st.lists(whole(32), max_size=2)),
    (pa.map_(pa.string(), pa.int8()), st.just([("k", 1)])),
    (
        _NESTED,
        st.fixed_dictionaries(
            {
                "n": st.none() | whole(32),
                "s": st.none() | TEXTS,
                "in": st.none()
                | st.fixed_dictionaries({"x": st.none() | whole(64), "l": st.just([1])}),
            }
        ),
    ),
)
FIELDS = ("a", "b", "c", "d")


@st.composite
def column(draw: st.DrawFn, name: str, count: int) -> tuple[Any, Any]:
    kind, values = draw(st.sampled_from(TYPES))
    nullable = draw(st.booleans())
    one = st.none() | values if nullable else values
    given_values = draw(st.lists(one, min_size=count, max_size=count))
    if pa.types.is_dictionary(kind):
        array = pa.array(given_values, kind.value_type).cast(kind)
    else:
        array = pa.array(given_values, kind)
    return pa.field(name, kind, nullable), array


@st.composite
def values(draw: st.DrawFn) -> Any:
    """A RecordBatch that may be a part of another."""
    count = draw(st.integers(1, 6))
    names = draw(st.lists(st.sampled_from(FIELDS), unique=True, min_size=1, max_size=4))
    made = [draw(column(name, count)) for name in names]
    found = pa.RecordBatch.from_arrays(
        [array for _, array in made], schema=pa.schema([field for field, _ in made])
    )
    start = draw(st.integers(0, count - 1))
    return found.slice(start, draw(st.integers(1, count - start)))


# -- chains --

NAMES = st.sampled_from([*FIELDS, "n", "zz"])
SEVERAL = st.lists(NAMES, unique=True, min_size=1, max_size=3).map(",".join)
TARGETS = st.sampled_from(
    ["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"]
)
CASTS = st.dictionaries(NAMES, TARGETS, min_size=1, max_size=3).map(
    lambda found: ",".join(f"{name}:{target}" for name, target in found.items())
)


def options(kind: str, required: dict[str, Any], optional: dict[str, Any]) -> Any:
    return st.fixed_dictionaries(required, optional=optional).map(
        lambda found: {"type": kind, **found}
    )


def both(kind: str, required: dict[str, Any], optional: dict[str, Any]) -> list[Any]:
    """With twice as much weight on values as on keys."""
    found = [options(f"{kind}$Value", required, optional)] * 2
    return [*found, options(f"{kind}$Key", required, optional)]


SUFFIX = st.sampled_from(["", "!", "?"])
NEW = st.tuples(NAMES | st.sampled_from(["new", "other"]), SUFFIX).map("".join)
MEMBERS = st.one_of(
    *both(
        "ReplaceField",
        {},
        {
            "exclude": SEVERAL,
            "include": SEVERAL,
            "renames": st.sampled_from(["a:b", "a:x,b:y", "c:a", "a:new"]),
        },
    ),
    *both("Cast", {"spec": CASTS | TARGETS}, {}),
    *both(
        "MaskField", {"fields": SEVERAL}, {"replacement": st.sampled_from(["x", "12", "1.5", "-9"])}
    ),
    *both(
        "InsertField",
        {"static.field": NEW, "static.value": st.just("v")},
        {
            "topic.field": NEW,
            "timestamp.field": NEW,
            "partition.field": NEW,
            "offset.field": NEW,
        },
    ),
    *both(
        "ExtractField",
        {"field": NAMES | st.sampled_from(["a.in", "a.in.x", "b.n"])},
        {"field.syntax.version": st.sampled_from(["V1", "V2"])},
    ),
    *both("HoistField", {"field": NAMES}, {}),
    *both("Flatten", {}, {"delimiter": st.sampled_from([".", "", "_"])}),
    *both("SetSchemaMetadata", {"schema.name": st.just("N")}, {"schema.version": st.just("3")}),
    *both(
        "TimestampConverter",
        {"field": NAMES, "target.type": st.sampled_from(["unix", "Date", "Time", "Timestamp"])},
        {"unix.precision": st.sampled_from(["seconds", "microseconds"])},
    ),
    options(
        "TimestampConverter$Value",
        {"field": NAMES, "target.type": st.just("string"), "format": st.just("yyyy-MM-dd HH:mm")},
        {},
    ),
    options(
        "RegexRouter",
        {"regex": st.sampled_from(["(t)", ".*"]), "replacement": st.sampled_from(["x$1", "y"])},
        {},
    ),
    options("TimestampRouter", {}, {"timestamp.format": st.just("yyyy")}),
    options("Filter", {}, {}),
    options(
        "InsertHeader",
        {"header": st.sampled_from(["h", "at"]), "value.literal": st.sampled_from(["12", "w"])},
        {},
    ),
    options("DropHeaders", {"headers": st.sampled_from(["at", "file", "h"])}, {}),
    options(
        "HeaderFrom$Key",
        {"fields": st.just("k"), "headers": st.just("h"), "operation": st.just("copy")},
        {},
    ),
)
PREDICATES = {
    "predicates.t.type": "TopicNameMatches",
    "predicates.t.pattern": "t|x.*",
    "predicates.h.type": "HasHeaderKey",
    "predicates.h.name": "h",
    "predicates.n.type": "RecordIsTombstone",
}
USES = st.none() | st.tuples(st.sampled_from("thn"), st.booleans())


@st.composite
def configs(draw: st.DrawFn) -> dict[str, str]:
    members = draw(st.lists(st.tuples(MEMBERS, USES), min_size=1, max_size=4))
    config = {"transforms": ",".join(str(at) for at in range(len(members))), **PREDICATES}
    for at, (member, use) in enumerate(members):
        for key, text in member.items():
            config[f"transforms.{at}.{key}"] = text
        if use is not None or member["type"] == "Filter":
            predicate, negate = use or ("n", False)
            config[f"transforms.{at}.predicate"] = predicate
            config[f"transforms.{at}.negate"] = str(negate).lower()
    return config


KEYS = st.sampled_from([(None, None), ("k", None), ("k", STRING), ({"k": 1, "a": "x"}, None)])

# -- both ways --


def converters() -> TaskConverters:
    key: Any = CONVERTERS["JsonConverter"]()
    key.configure({"schemas.enable": "false"}, is_key=True)
    return TaskConverters(key, TypedConverter(), SimpleHeaderConverter())


def in_the_log(made: TaskConverters, record: SourceRecord) -> Any:
    topic = record.topic
    key = None if record.key is None else made.key.from_connect(topic, record.key, None)
    return (
        *(topic, record.partition, key),
        made.value.from_connect(topic, record.value, record.value_schema),
        made.header.from_connect(topic, record.headers, record.header_schemas),
        record.timestamp_ms,
    )


def sent(made: TaskConverters, chain: Sequence[Transform], record: Any) -> Any:
    """What becomes of one record of a source: as it is in the log, None, or its error's text."""
    try:
        found = transform_source(chain, record)
        return None if found is None else in_the_log(made, found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def of_the_log(record: ConsumerRecord, time_ms: int | None) -> Any:
    return (record.topic, 0, record.key, record.value, record.headers, time_ms)


def by_batch(made: TaskConverters, chain: Sequence[Transform], batch: SourceBatch) -> list[Any]:
    batches = SourceBatches(made, chain)
    batches.flow = True
    found: list[Any] = []
    for item in batches.prepared([batch]):
        if isinstance(item, DroppedBatch):
            found += [None] * item.count
        elif isinstance(item, ReadyBatch):
            item.sent.offset, item.sent.timestamp_ms = 0, TIME_MS
            given_rows = rows.log_records(item.sent, 0, item.sent.count)
            found += [of_the_log(one, batch.timestamp_ms) for one in given_rows]
        else:
            found.append(sent(made, chain, item))
        event(type(item).__name__)
    return found


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(values(), configs(), KEYS, st.sampled_from([TIME_MS, None]))
def test_a_source_sends_the_same_either_way(
    columns: Any, config: dict[str, str], key: Any, time_ms: int | None
) -> None:
    chain, made = make_transforms(config), converters()
    if not takes_rows_at_once(chain):
        return
    schema = arrow_types.struct_schema(columns.schema)
    count = columns.num_rows
    offsets = RowOffsets({"n": range(count)})
    headers = (HEADERS[0], ("at", RowNumbers(range(100, 100 + count))))
    batch = SourceBatch(
        *(PLACE, offsets, "t", columns, schema, key[0], headers, 0, time_ms, key[1])
    )
    one_by_one = [sent(made, chain, record) for record in rows.source_records(batch)]
    assert by_batch(made, chain, batch) == one_by_one


def taken(made: TaskConverters, record: SinkRecord | None) -> Any:
    if record is None:
        return None
    value = made.value.from_connect(record.topic, record.value, record.value_schema)
    return (
        *(record.topic, record.partition, record.offset, repr(record.key), record.key_schema),
        *(value, record.headers, record.header_schemas, record.timestamp_ms),
    )


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(values(), configs(), KEYS, st.sampled_from([TIME_MS, -1]))
def test_a_sink_gets_the_same_either_way(
    columns: Any, config: dict[str, str], key: Any, time_ms: int
) -> None:
    chain, made = make_transforms(config), converters()
    if not takes_rows_at_once(chain):
        return
    schema = arrow_types.struct_schema(columns.schema)
    headers = (HEADERS[0], ("at", RowNumbers(range(100, 100 + columns.num_rows))))
    batch = SinkBatch(
        *("t", 3, 70, columns, schema, *key, headers), header_schemas=(), timestamp_ms=time_ms
    )
    try:
        found = BatchChain(chain).apply(batch)
    except Exception:  # the rows are changed one by one, and tell themselves
        event("one by one")
        return
    records = rows.sink_records(batch)
    one_by_one = [taken(made, transform_sink(chain, record)) for record in records]
    if found is None:
        event("dropped")
        assert one_by_one == [None] * len(records)
        return
    event("whole")
    assert [taken(made, record) for record in rows.sink_records(found)] == one_by_one
