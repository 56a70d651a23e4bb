"""Random records, with and without schemas, and configs of Connect's transforms."""

import decimal
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from support.java.transform_records import Record

from headgate.connector.api import SinkRecord, SourceRecord
from headgate.connector.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    Field,
    Schema,
    SchemaType,
)
from headgate.connector.transforms.times import date_of, datetime_of, time_of
from headgate.java.numbers import single
from headgate.java.simple_date_format import date_format

NAMES: Final = ("a", "b", "c", "at", "x.y", "q`r")
DAY_MS: Final = 86_400_000
FLOATS: Final = (
    *(0.0, -0.0, 1.5, 0.1, -2.25, 1e10, 5e-4, 1e7, 1e300, 3.4e38, 123456.789, 1e-7, 0.5, 300.7),
    *(float("nan"), float("inf"), float("-inf"), -9.3e18, 2.5e9, 16777217.0),
)
TEXTS: Final = (
    *("", "plain", "true", "TRUE", "False", "1", "-128", "128", "+7", "32768", "2147483648"),
    *("9223372036854775807", "9223372036854775808", " 12 ", "1.5", "-0", "1e3", "1e400", "0x1p3"),
    *("NaN", "Infinity", "-Infinity", ".5", "5.", "1.5f", "0x.8p1d", "1_0", "é", "٣", "😀", "--1"),
    *("16777217", "16777219.0000000001", "3.4028236e38", "1e-46", "0.1", "null", "1.40e-45"),
)
TIME_TEXTS: Final = (
    *("2024-02-29T12:34:56.789+0000", "2024-02-29T12:34:56.789Z", "20240229", "2024-02-29"),
    *("2024-02-29 12:34:56", "2024-13-45", "1999-12-31 23:59:59.9", "29/02/2024", "0001-01-01"),
    *("1582-10-10", "1500-02-29", "2024-02-29T12:34:56.789-08:30", "20240229123456", "12:34:56"),
    *("Feb 3, 2021", "february 3, 2021", "1:02 PM", "12:30 am", "2024-060", "Thu, 29 Feb 2024"),
    *(
        "2024-02-29T12:34:56+05",
        "2024-02-29T12:34:56Z",
        "2024-02-29T12:34:56GMT",
        "x",
        "",
        " 2024-",
    ),
    *("2024-02-29T12:34:56.7", "99999-1-1", "-5-01-01", "2024-02-29trailing", "2024- 2-  9"),
)
PATTERNS: Final = (
    *("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "yyyyMMdd", "yyyy-MM-dd"),
    *(
        "yyyy-MM-dd HH:mm:ss",
        "yyyy-MM-dd HH:mm:ss.SSS",
        "dd/MM/yyyy",
        "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    ),
    *("yyyyMMddHHmmss", "HH:mm:ss", "MMM d, yyyy", "h:mm a", "yyyy-DDD", "EEE, dd MMM yyyy"),
    *(
        "yyyy-MM-dd'T'HH:mm:ssX",
        "yyyy-MM-dd'T'HH:mm:ssz",
        "kk:mm",
        "K:mm a",
        "yyyy-MM-dd'T'HH:mm:ssXX",
    ),
    *("MMMM yyyy", "yyyy.MM.dd.HH", "'it''s' yyyy", "yyyyMM", "y-M-d H:m:s.S", "EEEE u"),
)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    config: Mapping[str, str]
    records: list[Record]


class Cases:
    """Random cases of one transform. `first_ms` is the earliest time in their records."""

    def __init__(self, chance: random.Random, first_ms: int = -20_000_000 * 1_000_000) -> None:
        self.chance = chance
        self.first_ms = first_ms
        self.pattern: str | None = None
        """Pattern that some texts match, or nearly."""

    # -- values --

    def ms(self) -> int:
        chance = self.chance
        days = self.first_ms // DAY_MS
        ms = chance.choice(
            [
                chance.randrange(days, 30_000) * DAY_MS,
                chance.randrange(self.first_ms, 2_500_000_000_000),
                chance.randrange(1_500_000_000_000, 1_800_000_000_000),
            ]
        )
        return max(ms, self.first_ms)

    def whole(self, bits: int) -> int:
        half = 1 << bits - 1
        edge = [0, 1, -1, half - 1, -half, 127, -128]
        return self.chance.choice([*edge, self.chance.randrange(-half, half)])

    def text(self) -> str:
        roll = self.chance.random()
        if self.pattern is not None and roll < 0.6:
            return self.time_text(self.pattern)
        return self.number_text() if roll < 0.75 else self.chance.choice([*TEXTS, *TIME_TEXTS])

    def time_text(self, pattern: str) -> str:
        text = date_format(pattern).format(self.ms())
        if self.chance.random() < 0.5 or not text:
            return text
        at = self.chance.randrange(len(text))
        other = self.chance.choice(["", " ", "0", "7", "99", "-", "+", "x", text[at].swapcase()])
        return text[:at] + other + text[at + 1 :]

    def number_text(self) -> str:
        chance = self.chance
        digits = "".join(chance.choices("0123456789", k=chance.randrange(1, 20)))
        point = chance.randrange(len(digits) + 1)
        exponent = chance.choice(["", "", "e-5", "E+3", f"e{chance.randrange(-60, 60)}"])
        return chance.choice(["", "-"]) + digits[:point] + "." + digits[point:] + exponent

    def floating(self) -> float:
        """Return a float of few digits, which Java 17 writes as Java 19 does."""
        chance = self.chance
        if chance.random() < 0.5:
            return chance.choice(FLOATS)
        return float(f"{chance.randrange(-999, 1000)}e{chance.randrange(-15, 19)}")

    def plain(self, depth: int = 2) -> Any:
        """Return a value without schema."""
        chance = self.chance
        makers: list[Callable[[], Any]] = [
            lambda: None,
            lambda: self.whole(chance.choice([8, 16, 32, 64, 64])),
            lambda: self.ms(),
            self.floating,
            lambda: chance.random() < 0.5,
            self.text,
            self.text,
            lambda: chance.randbytes(chance.randrange(4)),
            lambda: chance.choice([datetime_of, date_of, time_of])(self.ms()),
            lambda: chance.choice([decimal.Decimal("1.50"), 1 << 70]),
        ]
        if depth:
            makers += [lambda: self.map(depth - 1)] * 2
            makers += [lambda: [self.plain(depth - 1) for _ in range(chance.randrange(3))]]
        return chance.choice(makers)()

    def map(self, depth: int = 2) -> dict[str, Any]:
        names = self.chance.sample(NAMES, self.chance.randrange(len(NAMES) + 1))
        return {name: self.plain(depth) for name in names}

    # -- schemas --

    def schema(self, depth: int = 2, kind: SchemaType | None = None) -> Schema:
        chance = self.chance
        types = [*SchemaType] if depth else [each for each in SchemaType if each not in _NESTING]
        found = kind or chance.choice(types)
        parts: dict[str, Any] = {}
        if found is SchemaType.STRUCT:
            names = chance.sample(NAMES, chance.randrange(len(NAMES) + 1))
            parts["fields"] = tuple([Field(name, self.schema(depth - 1)) for name in names])
        elif found is SchemaType.ARRAY:
            parts["value_schema"] = self.schema(depth - 1)
        elif found is SchemaType.MAP:
            parts["key_schema"] = Schema(SchemaType.STRING)
            parts["value_schema"] = self.schema(depth - 1)
        if chance.random() < 0.3:
            parts["name"] = "some.name"
            parts["doc"] = chance.choice([None, "what it is"])
            parts["parameters"] = chance.choice([{}, {"p": "q"}])
        if chance.random() < 0.3:
            parts["version"] = chance.randrange(5)
        if chance.random() < 0.4 and found in _LOGICAL:
            parts["name"] = chance.choice(_LOGICAL[found])
            if parts["name"] == DECIMAL:
                parts["parameters"] = {"scale": chance.choice(["0", "2"])}
        made = Schema(found, chance.random() < 0.4, **parts)
        if chance.random() < 0.25:
            default = self.value(made, can_be_null=False)
            made = Schema(found, made.optional, default, **parts)
        return made

    def value(self, schema: Schema, *, can_be_null: bool = True) -> Any:
        chance = self.chance
        if can_be_null and schema.optional and chance.random() < 0.3:
            return None
        if schema.name in (DATE, TIME, TIMESTAMP):
            return {DATE: date_of, TIME: time_of, TIMESTAMP: datetime_of}[schema.name](self.ms())
        if schema.name == DECIMAL:
            texts = ["0", "1", "-7", "130", "1" * 30] if schema.scale == 0 else ["1.50", "-0.25"]
            return decimal.Decimal(chance.choice(texts))
        match schema.type:
            case SchemaType.INT8 | SchemaType.INT16 | SchemaType.INT32 | SchemaType.INT64:
                bits = int(schema.type.removeprefix("int"))
                return self.ms() if bits == 64 and chance.random() < 0.5 else self.whole(bits)
            case SchemaType.FLOAT32:
                few = [each for each in FLOATS if abs(each) != 1e300]
                number = float(f"{chance.randrange(-999, 1000)}e{chance.randrange(-6, 3)}")
                return single(chance.choice([*few, *[number] * len(few)]))
            case SchemaType.FLOAT64:
                return self.floating()
            case SchemaType.BOOLEAN:
                return chance.random() < 0.5
            case SchemaType.STRING:
                return self.text()
            case SchemaType.BYTES:
                return chance.randbytes(chance.randrange(4))
            case SchemaType.ARRAY:
                assert schema.value_schema is not None
                return [self.value(schema.value_schema) for _ in range(chance.randrange(3))]
            case SchemaType.MAP:
                assert schema.value_schema is not None
                names = chance.sample(NAMES, chance.randrange(3))
                return {name: self.value(schema.value_schema) for name in names}
            case SchemaType.STRUCT:
                return self.struct(schema)

    def struct(self, schema: Schema) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for field in schema.fields:
            has_default = field.schema.default is not None and self.chance.random() < 0.4
            value = None if has_default else self.value(field.schema)
            if value is not None or self.chance.random() < 0.5:
                result[field.name] = value
        return result

    # -- records --

    def records(self, count: int) -> list[Record]:
        """Return records, some of which share their schemas, as the records of a topic do."""
        chance = self.chance
        schemas = [self._top() for _ in range(3)]
        return [self.record(chance.choice(schemas), chance.choice(schemas)) for _ in range(count)]

    def _top(self) -> Schema | None:
        roll = self.chance.random()
        if roll < 0.4:
            return None
        return self.schema(2, SchemaType.STRUCT) if roll < 0.85 else self.schema()

    def _of(self, schema: Schema | None) -> Any:
        if schema is not None:
            return self.value(schema)
        roll = self.chance.random()
        return None if roll < 0.1 else self.map() if roll < 0.7 else self.plain()

    def record(self, key: Schema | None, value: Schema | None) -> Record:
        chance = self.chance
        topic = chance.choice(["t", "a-b", "some.topic", "ab"])
        headers = tuple(
            [(chance.choice("abc"), self.plain(0)) for _ in range(chance.randrange(3))]
            if chance.random() < 0.6
            else []
        )
        kept = (self._of(key), self._of(value))
        if chance.random() < 0.5:
            timestamp = None if chance.random() < 0.2 else self.ms()
            partition = chance.choice([None, 3])
            return SourceRecord(
                {}, {}, topic, kept[1], kept[0], headers, partition, timestamp, key, value
            )
        timestamp = -1 if chance.random() < 0.2 else max(self.ms(), 0)
        return SinkRecord(topic, 3, 44, *kept, headers, timestamp, key, value)

    # -- configs --

    def names(self, most: int = 3) -> list[str]:
        return self.chance.sample(NAMES, self.chance.randrange(1, most + 1))

    def replace_null(self) -> dict[str, str]:
        chosen = self.chance.choice([None, "true", "false", "false"])
        return {} if chosen is None else {"replace.null.with.default": chosen}

    def case(self, name: str, count: int) -> Case:
        """Return a case of one of `CLASSES`."""
        config = _CONFIGS[name.partition("$")[0]](self)
        return Case(name, config, self.records(count))


_NESTING: Final = (SchemaType.ARRAY, SchemaType.MAP, SchemaType.STRUCT)
_LOGICAL: Final = {
    SchemaType.BYTES: [DECIMAL],
    SchemaType.INT32: [DATE, TIME],
    SchemaType.INT64: [TIMESTAMP],
}
_CASTS: Final = (
    *("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string", "STRING"),
    *("string ", "int64"),
)


def _cast(cases: Cases) -> dict[str, str]:
    chance = cases.chance
    if chance.random() < 0.3:
        spec = chance.choice(_CASTS)
    else:
        spec = ",".join(f"{name}:{chance.choice(_CASTS)}" for name in cases.names(4))
    if chance.random() < 0.04:
        spec = chance.choice(
            ["", "a:nope", "a:bytes", "a:b:c", "int8,a:int8", "map", "a:", ":int8"]
        )
    return {"spec": spec, **cases.replace_null()}


def _extract_field(cases: Cases) -> dict[str, str]:
    chance = cases.chance
    if chance.random() < 0.4:
        return {"field": chance.choice(NAMES), **cases.replace_null()}
    steps = [name if "." not in name else f"`{name}`" for name in cases.names(3)]
    path = ".".join(steps)
    if chance.random() < 0.1:
        path = chance.choice(
            ["`a", "a.", ".a", "`a`b`.c", "`a\\`.b`.c", "``", "`x.y`", "a..b", "`a\\`"]
        )
    return {
        "field": path,
        "field.syntax.version": chance.choice(["V2", "v2"]),
        **cases.replace_null(),
    }


def _header_from(cases: Cases) -> dict[str, str]:
    chance = cases.chance
    fields = cases.names(2)
    headers = [chance.choice("abz") for _ in fields]
    if chance.random() < 0.03:
        headers.append("more")
    return {
        "fields": ",".join(fields) if chance.random() < 0.98 else "",
        "headers": ",".join(headers),
        "operation": chance.choice(["move", "copy"]) if chance.random() < 0.98 else "other",
        **cases.replace_null(),
    }


def _insert_field(cases: Cases) -> dict[str, str]:
    chance = cases.chance
    config: dict[str, str] = {}
    for kind in ("topic", "partition", "offset", "timestamp", "static"):
        if chance.random() < (0.15 if kind == "offset" else 0.4):
            name = chance.choice(["n1", "n2", "n3", "n4", "n5", "a"])
            config[f"{kind}.field"] = name + chance.choice(["", "?", "!"])
    if chance.random() < 0.95:
        config["static.value"] = "fixed"
    return {**config, **cases.replace_null()}


def _mask_field(cases: Cases) -> dict[str, str]:
    chance = cases.chance
    config = {"fields": ",".join(cases.names(3)), **cases.replace_null()}
    if chance.random() < 0.5:
        config["replacement"] = chance.choice(
            ["***", "0", "-5", "300", "1.75", "1e3", "9223372036854775808", "1e-400", "+4", "abc"]
        )
    if chance.random() < 0.02:
        config["fields"] = ""
    return config


def _replace_field(cases: Cases) -> dict[str, str]:
    chance = cases.chance
    config = cases.replace_null()
    if chance.random() < 0.5:
        config["exclude"] = ",".join(cases.names(2))
    if chance.random() < 0.4:
        config["include"] = ",".join(cases.names(4))
    if chance.random() < 0.6:
        targets = chance.sample(["r1", "r2", "r3", "b"], 3)
        pairs = [f"{name}:{target}" for name, target in zip(cases.names(2), targets, strict=False)]
        config["renames"] = ",".join(pairs)
    if chance.random() < 0.03:
        config["renames"] = chance.choice(["a", "a:b:c", "a:", ":b", "a:b:"])
    return config


def _set_schema_metadata(cases: Cases) -> dict[str, str]:
    config = cases.replace_null()
    if cases.chance.random() < 0.7:
        config["schema.name"] = cases.chance.choice(["new.name", "other"])
    if cases.chance.random() < 0.6:
        config["schema.version"] = cases.chance.choice(["7", "0", "x"])
    return config


def _pattern(cases: Cases) -> str:
    """Return a usual date pattern, or one of random letters."""
    chance = cases.chance
    if chance.random() < 0.6:
        return chance.choice(PATTERNS)
    parts: list[str] = []
    for letter in chance.sample("yMdHhmsSaEuzZXDkK", chance.randrange(1, 7)):
        most = 3 if letter in "XS" else 5
        parts.append(letter * chance.randrange(1, most + 1))
        parts.append(chance.choice(["", "", "-", ":", " ", "'T'", "''", "."]))
    return "".join(parts)


def _timestamp_converter(cases: Cases) -> dict[str, str]:
    chance = cases.chance
    target = chance.choice(["string", "unix", "Date", "Time", "Timestamp"])
    config = {"target.type": target, **cases.replace_null()}
    if chance.random() < 0.8:
        config["field"] = chance.choice(["at", "a", "b"])
    if chance.random() < 0.85:
        config["format"] = cases.pattern = _pattern(cases)
    if chance.random() < 0.5:
        config["unix.precision"] = chance.choice(
            ["nanoseconds", "microseconds", "milliseconds", "seconds"]
        )
    return config


def _timestamp_router(cases: Cases) -> dict[str, str]:
    formats = ["${topic}-${timestamp}", "${timestamp}", "x-${topic}", "${topic}${topic}$1\\"]
    return {
        "topic.format": cases.chance.choice(formats),
        "timestamp.format": _pattern(cases),
    }


def _regex_router(cases: Cases) -> dict[str, str]:
    return {
        "regex": cases.chance.choice(["(.*)-(.*)", "t", "a|ab", ".*", "([a-z]*)(-.*)?"]),
        "replacement": cases.chance.choice(
            ["new", "$1", "$2.$1", "\\$$1", "$12", "$0x", "$3", "$", "\\", "${n}", "a\\b"]
        ),
    }  # fmt: skip


def _insert_header(cases: Cases) -> dict[str, str]:
    literals = ["x", "12", "true", "false", "-129", "70000", "5000000000", "1.5", "plain text", ""]
    return {
        "header": cases.chance.choice(["a", "n", ""]),
        "value.literal": cases.chance.choice([*literals, "0.1", "null", "a:b", "{", "-", "nan"]),
    }


_CONFIGS: Final[Mapping[str, Callable[[Cases], dict[str, str]]]] = {
    "Cast": _cast,
    "DropHeaders": lambda cases: {"headers": ",".join(cases.chance.sample("abcd", 2))},
    "ExtractField": _extract_field,
    "Filter": lambda cases: {},
    "Flatten": lambda cases: (
        {"delimiter": cases.chance.choice(["_", "", "."])} if cases.chance.random() < 0.7 else {}
    ),
    "HasHeaderKey": lambda cases: {"name": cases.chance.choice(["a", "b", "z", ""])},
    "HeaderFrom": _header_from,
    "HoistField": lambda cases: {"field": cases.chance.choice(["a", "new", "é", ""])},
    "InsertField": _insert_field,
    "InsertHeader": _insert_header,
    "MaskField": _mask_field,
    "RecordIsTombstone": lambda cases: {},
    "RegexRouter": _regex_router,
    "ReplaceField": _replace_field,
    "SetSchemaMetadata": _set_schema_metadata,
    "TimestampConverter": _timestamp_converter,
    "TimestampRouter": _timestamp_router,
    "TopicNameMatches": lambda cases: {"pattern": cases.chance.choice(["t", "a.*", ".*", ""])},
    "ValueToKey": lambda cases: {"fields": ",".join(cases.names(2)), **cases.replace_null()},
}
_WITHOUT_SIDES: Final = frozenset(
    {
        *("DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TimestampRouter", "ValueToKey"),
        *("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches"),
    }
)
CLASSES: Final = tuple(
    name + side
    for name in _CONFIGS
    for side in ([""] if name in _WITHOUT_SIDES else ["$Key", "$Value"])
)
