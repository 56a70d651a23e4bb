"""Options of a DirectorySource, and which files of the directory it reads as what."""

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.topic_names import topic_fault
from headgate.connector.validators import at_least, between, non_empty, one_of, optional, regex
from headgate_connectors.files.input import COMPRESSIONS
from headgate_connectors.files.reader import ROW_BYTES, FileFault, ReadOptions
from headgate_connectors.formats.column_kinds import KINDS as COLUMN_KINDS
from headgate_connectors.formats.column_kinds import column_types, parse_columns
from headgate_connectors.formats.csv_file import FIELD_CHARS_MAX
from headgate_connectors.formats.csv_inference import INFER
from headgate_connectors.formats.csv_types import KINDS, parse_types
from headgate_connectors.formats.text_checks import zone_of

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".orc": "orc",
    ".avro": "avro",
    ".txt": "lines",
    ".log": "lines",
}
UNREAD_COMPRESSIONS = (".zip", ".xz", ".lz4", ".snappy", ".sz", ".br", ".7z", ".lzo", ".rar")
BY_ROWS: Final[Mapping[str, str]] = {
    "parquet": "Parquet",
    "arrow": "Arrow",
    "orc": "ORC",
    "avro": "Avro",
}
"""Formats that compress by themselves, whose offsets count rows."""
SKIPPED_PREFIXES = (".", "_")
SKIPPED_SUFFIXES = (".tmp", ".part")
_PLACE = re.compile(r"\$\{(\w+)\}")
_NO_LINES: Final = ("iso2022", "hz", "utf-7", "unicode", "raw")
"""How names of encodings begin in which bytes of ASCII stand for other characters, too."""


def _one_char(name: str, value: Any) -> None:
    if value in ("tab", "none"):
        return
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
        raise ConfigError.of(name, value, "expected one ASCII character, tab or none")


def _encoding(name: str, value: Any) -> None:
    """Lines are cut at the byte 0x0A, so it must stand for a line end and nothing else."""
    try:
        codec = codecs.lookup(value)
        alike = not codec.name.startswith(_NO_LINES)
        alike = alike and bytes(range(128)).decode(value) == "".join(map(chr, range(128)))
    except (LookupError, ValueError):
        alike, codec = False, None
    if codec is None:
        raise ConfigError.of(name, value, "an encoding that is not known, such as utf-8, latin-1")
    if not alike:
        text = "only encodings that write ASCII as ASCII are read; convert the files to UTF-8"
        raise ConfigError.of(name, value, text)


def _types(name: str, value: Any) -> None:
    try:
        parse_types(value)
    except ValueError as error:
        raise ConfigError.of(name, value, str(error)) from None


def _csv_types(name: str, value: Any) -> None:
    if value.strip().lower() != INFER:
        _types(name, value)


def _zone(name: str, value: Any) -> None:
    try:
        if value is not None:
            zone_of(value)
    except ValueError as error:
        raise ConfigError.of(name, value, str(error)) from None


def _define(
    keys: ConfigDef,
    name: str,
    default: Any,
    text: str,
    validator: Callable[[str, Any], None] | None = None,
    kind: Type = Type.STRING,
) -> None:
    keys.define(name, kind, default, validator, Importance.LOW, text)


def _config() -> ConfigDef:
    keys = ConfigDef()
    keys.define(
        "path",
        Type.STRING,
        validator=non_empty,
        importance=Importance.HIGH,
        documentation="The directory; files in directories below it are read too. A folder of this "
        "machine, or an address that fsspec knows, such as s3://bucket/folder, https:// or "
        "sftp://. Options of its file system begin with fs., such as fs.key and fs.secret for S3, "
        "or fs.username and fs.password for SFTP.",
    )
    keys.define(
        "topic",
        Type.STRING,
        validator=non_empty,
        importance=Importance.HIGH,
        documentation="The topic to publish data to. With topic.pattern it may hold ${1} or "
        "${name}, groups of that pattern.",
    )
    keys.define(
        "format",
        Type.STRING,
        "auto",
        one_of("auto", "jsonl", "json", "lines", "csv", "tsv", *BY_ROWS),
        Importance.MEDIUM,
        "Format of all files. The format 'auto' goes by the extension: "
        f"{', '.join(f'{end} {name}' for end, name in FORMATS.items())}. Files with another "
        "extension are left alone. A file of format 'json' is one array, whose elements are the "
        "records, or else JSON Lines.",
    )
    _define_choice_of_files(keys)
    _define_text(keys)
    _define_csv(keys)
    _define_columns(keys)
    _define_changes(keys)
    _define_faults(keys)
    _define_pace(keys)
    return keys


def _define_choice_of_files(keys: ConfigDef) -> None:
    _define(
        keys,
        "include",
        [],
        "Patterns of the files to read; none: all. * and ? stand for characters but a slash, ** "
        "for any folders, [...] for one of some. A pattern without a slash is compared with the "
        "file's name, one with a slash with the path below the directory.",
        kind=Type.LIST,
    )
    _define(
        keys,
        "exclude",
        [],
        "Patterns of files to leave alone, even if include names them.",
        kind=Type.LIST,
    )
    _define(
        keys,
        "topic.pattern",
        None,
        "A regular expression for the whole path of a file below the directory, with slashes. Its "
        "groups stand in topic. A file that does not match is a bad file.",
        optional(regex),
    )


def _define_text(keys: ConfigDef) -> None:
    _define(
        keys,
        "compression",
        "auto",
        "Compression of text files; 'auto': by the end of the name "
        f"({', '.join(f'{end} {name}' for end, name in COMPRESSIONS.items())}).",
        one_of("auto", "none", *COMPRESSIONS.values()),
    )
    _define(keys, "encoding", "utf-8", "Encoding of text files.", _encoding)
    _define(
        keys,
        "json.check",
        True,
        "Whether each line of JSON Lines must be one JSON value.",
        kind=Type.BOOLEAN,
    )
    _define(
        keys,
        "json.types",
        "",
        "Types of the members of JSON objects, as csv.types has them. Values then have a schema. "
        "A member that is not there is null. One that is not named here, or is no value of its "
        "type, makes a bad record. By default values are the JSON that stands there, as text.",
        _types,
    )


def _define_csv(keys: ConfigDef) -> None:
    _define(keys, "csv.delimiter", ",", "Character between two fields, or tab.", _one_char)
    _define(
        keys,
        "csv.quote",
        '"',
        "Character around a field that holds delimiters or line ends, or none.",
        _one_char,
    )
    _define(
        keys,
        "csv.header",
        True,
        "Whether the first row names the columns. If not, they are c1, c2 and so on.",
        kind=Type.BOOLEAN,
    )
    _define(
        keys,
        "csv.null",
        None,
        "Text of a field that is null, such as NULL or nothing at all. By default none is. In "
        "quotes it is text, where the column is string.",
    )
    _define(
        keys,
        "csv.escape",
        "none",
        "Character before a quote, a delimiter, a line end, csv.comment or another of itself that "
        "is part of a field, or none. Before any other character it is text. A quote may always be "
        "doubled.",
        _one_char,
    )
    _define(
        keys,
        "csv.comment",
        "none",
        "Character at the beginning of lines that are passed over, or none.",
        _one_char,
    )
    _define(
        keys,
        "csv.row.bytes.max",
        ROW_BYTES,
        "Most bytes of a row. Where a closing quote is missing, rows wait until so many bytes have "
        "followed, or the next quote or the end of the file shows it.",
        between(1, FIELD_CHARS_MAX),
        Type.INT,
    )


def _define_columns(keys: ConfigDef) -> None:
    _define(
        keys,
        "csv.types",
        "",
        f"Types of columns, such as 'id: int64, price: decimal(10,2)': {KINDS}. Rows then have a "
        "schema; columns that are not named are string. A text that is no value of its type is a "
        "bad record, named with file and line. By default rows are JSON objects of text. The word "
        "infer has the types taken from the first file with rows, for good: a text that its type "
        "would write in another way, such as 007, makes its column string.",
        _csv_types,
    )
    _define(
        keys,
        "csv.timezone",
        None,
        "For csv.types: time zone of timestamps that have none, such as UTC or Europe/Berlin. By "
        "default those are bad records.",
        optional(_zone),
    )
    _define(
        keys,
        "csv.columns",
        [],
        "Names of the columns of files without a header row.",
        kind=Type.LIST,
    )


def _define_changes(keys: ConfigDef) -> None:
    _define(
        keys,
        "columns.types",
        "",
        "Types of columns of Parquet, Arrow, ORC and Avro files, such as 'id: int64, at: "
        "timestamp(us, UTC)', so that all files have the same. Other columns are as each file has "
        f"them. Types are {COLUMN_KINDS}.",
        column_types,
    )
    _define(
        keys,
        "schema.change",
        "refuse",
        "What to do about a file whose columns are not those of columns.types or csv.types. Choose "
        "'refuse' to take it for a bad file, see on.bad.file. Choose 'widen' to take narrower "
        "types, each value unchanged, and null where a column is not there. A value that the "
        "declared type does not hold is then a bad record.",
        one_of("refuse", "widen"),
    )


def _define_faults(keys: ConfigDef) -> None:
    _define(
        keys,
        "on.replace",
        "auto",
        "What to do where another file stands under the name of one that was read. Choose "
        "'reread' to read it from its beginning, 'skip' to leave it alone, 'fail' to fail the "
        "task. The default 'auto' rereads, but a file that only became shorter is a bad file.",
        one_of("auto", "reread", "skip", "fail"),
    )
    _define(
        keys,
        "on.bad.file",
        "quarantine",
        "What to do about a file that cannot be read on: corrupt, in another format or encoding, "
        "or with a bad record where errors.tolerance is none. Choose 'quarantine' to set it aside "
        "and read the others. It is tried again when it changes or the task restarts. Choose "
        "'fail' to fail the task.",
        one_of("quarantine", "fail"),
    )


def _define_pace(keys: ConfigDef) -> None:
    _define(
        keys,
        "batch.size",
        2000,
        "The maximum number of records the source task can read each time it is polled. Where the "
        "log keeps rows of Parquet, Arrow and ORC files as batches, 65,536 unless this is set",
        at_least(1),
        Type.INT,
    )
    _define(
        keys,
        "poll.interval.ms",
        500,
        "Time between two looks at the directory while there is nothing to read.",
        at_least(1),
        Type.INT,
    )
    _define(
        keys,
        "file.settle.ms",
        1000,
        "With --until-idle: how long a file must be still before its end is taken for final, so "
        "that a last line without a newline is read. Otherwise such a line waits for its newline.",
        at_least(0),
        Type.INT,
    )
    _define(
        keys,
        "records.per.second",
        0.0,
        "A limit for each task; 0 is none.",
        at_least(0),
        Type.DOUBLE,
    )


CONFIG = _config()


def read_options(settings: Mapping[str, Any]) -> ReadOptions:
    quote, delimiter, escape, comment = (
        settings[f"csv.{name}"] for name in ("quote", "delimiter", "escape", "comment")
    )
    timezone = settings["csv.timezone"]
    infers = settings["csv.types"].strip().lower() == INFER
    return ReadOptions(
        check_json=settings["json.check"],
        # The reader takes the mark off the file; the codec would take one off each line.
        encoding=codecs.lookup(settings["encoding"]).name.removesuffix("-sig"),
        delimiter="\t" if delimiter == "tab" else delimiter,
        quote=None if quote == "none" else quote,
        header=settings["csv.header"],
        null=settings["csv.null"],
        escape=None if escape in ("none", quote) else escape,  # a quote may always be doubled
        comment=None if comment == "none" else comment,
        columns=tuple(settings["csv.columns"]),
        types={} if infers else parse_types(settings["csv.types"]),
        infers=infers,
        json_types=parse_types(settings["json.types"]),
        zone=None if timezone is None else zone_of(timezone),
        column_types=parse_columns(settings["columns.types"]),
        widens=settings["schema.change"] == "widen",
        row_bytes=settings["csv.row.bytes.max"],
    )


def config_errors(config: Mapping[str, str]) -> dict[str, list[str]]:
    """What one key alone does not show."""
    errors: dict[str, list[str]] = {}
    topic, pattern = config.get("topic") or "", config.get("topic.pattern")
    places = _PLACE.findall(topic)
    if places and not pattern:
        text = f"${{{places[0]}}} is a group of topic.pattern, which is not set"
        errors["topic"] = [str(ConfigError.of("topic", topic, text))]
    elif not places and topic and (fault := topic_fault(topic)):
        errors["topic"] = [str(ConfigError.of("topic", topic, fault))]
    elif places and pattern:
        try:
            expression = re.compile(pattern)
        except re.error:
            return errors  # said of topic.pattern
        known = {*map(str, range(expression.groups + 1)), *expression.groupindex}
        if unknown := [place for place in places if place not in known]:
            text = f"topic.pattern has no group {unknown[0]}"
            errors["topic"] = [str(ConfigError.of("topic", topic, text))]
    if config.get("csv.delimiter") == "none":
        text = "expected one ASCII character, or tab"
        errors["csv.delimiter"] = [str(ConfigError.of("csv.delimiter", "none", text))]
    elif clash := _clash(config):
        errors[clash[0]] = [str(ConfigError.of(clash[0], config.get(clash[0]), clash[1]))]
    columns = [name.strip() for name in (config.get("csv.columns") or "").split(",")]
    header = (config.get("csv.header") or "true").strip().lower() != "false"
    if columns != [""] and (header or len(set(columns)) != len(columns)):
        text = (
            "expected each name once" if not header else "the header row has them: set csv.header"
        )
        errors["csv.columns"] = [
            str(ConfigError.of("csv.columns", config.get("csv.columns"), text))
        ]
    return errors


def _clash(config: Mapping[str, str]) -> tuple[str, str] | None:
    """A key whose character another key has, too, and what was expected. The escape may be the
    quote: then it is the one that is doubled."""
    known: dict[str, str] = {}
    for mark, default in (("delimiter", ","), ("quote", '"'), ("escape", ""), ("comment", "")):
        key = f"csv.{mark}"
        text = (config.get(key) or default).strip()
        other = known.get(text)
        if other is not None and (other, mark) != ("csv.quote", "escape"):
            return key, f"expected another character than {other} has"
        if text not in ("", "none"):
            known[text] = key
    return None


@dataclass(frozen=True, slots=True)
class Kind:
    """As what a file is read."""

    format: str
    compression: str | None


class Choice:
    """Which files are read, as what, and to which topic; names are paths below the directory."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._format: str = settings["format"]
        self._compression: str = settings["compression"]
        self._include = [_glob(pattern) for pattern in settings["include"]]
        self._exclude = [_glob(pattern) for pattern in settings["exclude"]]
        self._topic: str = settings["topic"]
        pattern = settings["topic.pattern"]
        self._pattern = re.compile(pattern) if pattern else None

    def takes(self, name: str) -> bool:
        if name.endswith(SKIPPED_SUFFIXES):
            return False
        if self._include and not any(fits(name) for fits in self._include):
            return False
        return not any(fits(name) for fits in self._exclude)

    def kind(self, name: str) -> Kind | str:
        """As what the file is read, or why it is left alone."""
        compression: str | None = self._compression
        path = PurePosixPath(name)
        end = path.suffix.lower()
        by_name = COMPRESSIONS.get(end)
        if compression == "auto":
            compression = by_name
        elif compression == "none":
            compression = None
        if by_name is not None:
            end = path.with_suffix("").suffix.lower()
        if compression is None and end in UNREAD_COMPRESSIONS and self._format not in BY_ROWS:
            known = ", ".join(COMPRESSIONS.values())
            return f"files ending in {end!r} are left alone, such as {name}: read are {known}"
        format = FORMATS.get(end) if self._format == "auto" else self._format
        if format is None:
            shown = path.suffix if by_name is None else "".join(path.suffixes[-2:])
            which = f"ending in {shown!r}" if shown else "without an extension"
            return f"files {which} are left alone, such as {name}: set format"
        what = BY_ROWS.get(format)
        if what is not None and by_name is not None:
            return f"compressed {what} files are left alone, such as {name}: decompress them"
        return Kind(format, None if what is not None else compression)

    def topic(self, name: str) -> str:
        """
        Raises:
            FileFault: the name gives no topic.
        """
        if self._pattern is None:
            return self._topic
        found = self._pattern.fullmatch(name)
        if found is None:
            raise FileFault(
                f"its path does not match topic.pattern ({self._pattern.pattern}); exclude it, or "
                "let the pattern match it"
            )
        groups = {**{str(n): found.group(n) for n in range(len(found.groups()) + 1)}}
        groups |= found.groupdict()
        topic = _PLACE.sub(lambda place: groups.get(place[1]) or "", self._topic)
        if fault := topic_fault(topic):
            raise FileFault(f"its path gives the topic {fault}")
        return topic


def _glob(pattern: str) -> Callable[[str], bool]:
    expression, rest = "", pattern.removeprefix("/")
    while rest:
        if rest.startswith("**/"):
            expression, rest = expression + "(?:.*/)?", rest[3:]
        elif rest.startswith("**"):
            expression, rest = expression + ".*", rest[2:]
        elif rest[0] in "*?":
            expression, rest = expression + ("[^/]*" if rest[0] == "*" else "[^/]"), rest[1:]
        elif rest[0] == "[" and (end := rest.find("]", 2)) > 0:
            inner = rest[1:end].replace("\\", "\\\\")
            inner = "^" + inner[1:] if inner[0] == "!" else inner
            expression, rest = f"{expression}[{inner}]", rest[end + 1 :]
        else:
            expression, rest = expression + re.escape(rest[0]), rest[1:]
    compiled = re.compile(expression, re.DOTALL)
    if "/" in pattern:
        return lambda name: compiled.fullmatch(name) is not None
    return lambda name: compiled.fullmatch(name.rpartition("/")[2]) is not None
