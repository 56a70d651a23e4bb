"""A chain of transforms makes the same records from a batch as from the batch's rows one by one.

That holds for values, schemas, keys, headers, topics, dropped records, and the texts of errors.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.data.batch_transforms import sink_ways, source_ways

from headgate.connector.batches import RowNumbers, RowOffsets, SinkBatch, SourceBatch
from headgate.connector.schema import STRING
from headgate.connector.transforms import make_transforms, takes_rows_at_once
from headgate_arrow import arrow_types

TIME_MS = 1_704_067_200_123

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
    """Return options of a transform for values and for keys. Values have twice the weight."""
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

# -- laws --


def _source_law(columns: Any, config: dict[str, str], key: Any, time_ms: int | None) -> None:
    chain = make_transforms(config)
    if not takes_rows_at_once(chain):
        return
    schema = arrow_types.struct_schema(columns.schema)
    count = columns.num_rows
    offsets = RowOffsets({"n": range(count)})
    headers = (("file", "a"), ("at", RowNumbers(range(100, 100 + count))))
    batch = SourceBatch(
        *({"file": "a"}, offsets, "t", columns, schema, key[0], headers, 0, time_ms, key[1])
    )
    at_once, one_by_one = source_ways(chain, batch)
    assert at_once == one_by_one


def _sink_law(columns: Any, config: dict[str, str], key: Any, time_ms: int) -> None:
    chain = make_transforms(config)
    if not takes_rows_at_once(chain):
        return
    schema = arrow_types.struct_schema(columns.schema)
    headers = (("file", "a"), ("at", RowNumbers(range(100, 100 + columns.num_rows))))
    batch = SinkBatch(*("t", 3, 70, columns, schema, *key, headers), timestamp_ms=time_ms)
    at_once, one_by_one = sink_ways(chain, batch)
    event("one by one" if at_once is None else "at once")
    assert at_once is None or at_once == one_by_one


SOURCE = given(drawn=st.tuples(values(), configs(), KEYS, st.sampled_from([TIME_MS, None])))
SINK = given(drawn=st.tuples(values(), configs(), KEYS, st.sampled_from([TIME_MS, -1])))
FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@SOURCE
def test_a_source_sends_the_same_either_way(drawn: Any) -> None:
    _source_law(*drawn)


@FEW
@SINK
def test_a_sink_gets_the_same_either_way(drawn: Any) -> None:
    _sink_law(*drawn)


@pytest.mark.exhaustive
@MANY
@SOURCE
def test_many_sources_send_the_same_either_way(drawn: Any) -> None:
    _source_law(*drawn)


@pytest.mark.exhaustive
@MANY
@SINK
def test_many_sinks_get_the_same_either_way(drawn: Any) -> None:
    _sink_law(*drawn)
