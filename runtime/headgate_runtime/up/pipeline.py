"""The pipeline file of ``headgate up``: read, checked as a whole, and made into Connect's strings.

docs/run/pipeline.md describes the file. All faults are found before anything starts and reported at
once, each with its line and with what would be right.
"""

import datetime
import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headgate.connector.config_providers import HiddenValues
from headgate.connector.framework import CONVERTER_KEYS
from headgate.connector.validation import converter_errors
from headgate.log.retention import KEYS as LOG_KEYS
from headgate.log.retention import LimitsError, LogLimits, parse_limits
from headgate_runtime.config.parsers import RUNNERS
from headgate_runtime.config.settings import (
    CONVERTER_PREFIXES,
    PIPELINE_KEYS,
    SettingsError,
    WorkerSettings,
)
from headgate_runtime.plugins.check import connector_problems, needs_spark
from headgate_runtime.spark.settings import DEFAULT_MASTER, DRIVER_TIMEOUT, SparkSettings
from headgate_runtime.up import toml_lines
from headgate_runtime.up.places import home, home_expanded, is_there, look_at, unexpanded
from headgate_runtime.up.references import checked, table_checked

WORKERS_MAX = 1_000
DEFAULT_DATA = "state"
GROUP = "headgate"
"""Default of `group.id`, the same for every pipeline file. The group is part of the transactional
ids. If it followed the file's name, a renamed pipeline would leave its old producers unfenced."""
DEFAULTS: Mapping[str, str] = {
    "group.id": GROUP,
    "exactly.once.source.support": "enabled",
    "scheduled.rebalance.max.delay.ms": "3000",
    "value.converter": "TypedConverter",
}
"""Worker settings whose default under ``headgate up`` differs from Connect's."""

BYTE_ORDER_MARK = "\ufeff"
"""Character with which Windows editors begin a file. TOML does not allow it."""

TABLES = ("cluster", "log", "spark", "connectors")
_CLUSTER_OWN = ("workers", "data", "runner")
_SPARK_OWN = ("master", "remote", "host", "conf")
_RUNNER_KEY = "headgate.task.runner"
_UNASKED_SPARK = (
    "no runner is named, so Spark starts, which takes about 20 s, and no connector of the file "
    'needs it; runner = "process" under [cluster] does without'
)
_ELSEWHERE = {
    "bootstrap.servers": "there is no broker: the log is the folder named by data",
    "config.storage.topic": "the config topic is part of the folder named by data",
    "status.storage.topic": "the status topic is part of the folder named by data",
    "listeners": "workers of one machine call each other through the folder named by data",
    "plugin.path": "connectors are found as installed Python packages (see headgate plugins)",
    "offset.storage.file.filename": "source offsets are kept in the folder named by data",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of the file: its place, what was seen, and what would be right."""

    line: int | None
    where: str
    """Table and key as a reader of the file would write them. Empty: the file as a whole."""
    text: str

    def show(self, file: str) -> str:
        place = f"{file}:{self.line}" if self.line is not None else file
        return f"{place}: {self.where}: {self.text}" if self.where else f"{place}: {self.text}"


class PipelineError(Exception):
    """The pipeline file is refused. `problems` are in the order of their lines."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = sorted(problems, key=lambda one: (one.line or 0, one.where))
        super().__init__("\n".join(problem.show(file) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Pipeline:
    file: Path
    """Absolute path of the file."""
    workers: int
    data: Path
    """Folder of the embedded log, as an absolute path."""
    log: LogLimits
    runner: str
    settings: Mapping[str, str]
    """Worker settings: those of the file over `DEFAULTS`, and no other defaults of Connect."""
    spark: SparkSettings
    connectors: Mapping[str, Mapping[str, str]]
    """Configs by name, in the order of the file. Paths in them are as written, except for a ``~``:
    workers run with `folder` as their working directory."""
    notes: Sequence[str] = ()
    """Notes to read before the start that are no faults."""

    @property
    def folder(self) -> Path:
        """Folder in which relative paths of the pipeline start."""
        return self.file.parent


def load(path: str | Path) -> Pipeline:
    """Read and check a pipeline file.

    Raises:
        PipelineError: the file has faults. The error lists them all.
    """
    shown = str(path)
    file = home(shown).absolute()
    try:
        text = file.read_bytes().decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except FileNotFoundError:
        raise PipelineError(shown, [Problem(None, "", _no_such_file(file))]) from None
    except IsADirectoryError:
        what = "a folder; name the pipeline file in it"
        raise PipelineError(shown, [Problem(None, "", what)]) from None
    except UnicodeDecodeError as error:
        what = f"not a text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        raise PipelineError(shown, [Problem(None, "", what)]) from None
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise PipelineError(shown, [Problem(None, "", what)]) from None
    if file.suffix == ".properties":
        what = "looks like a worker's file, expected a pipeline in TOML; headgate worker runs it"
        raise PipelineError(shown, [Problem(None, "", what)])
    return parse(text, file, shown)


def parse(text: str, file: Path, shown: str | None = None) -> Pipeline:
    """Return the pipeline that `text` describes. Its path is `file`, which errors call `shown`."""
    name = shown or str(file)
    try:
        lines = toml_lines.index(text)
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(name, [_syntax(error, lines)]) from None
    except ValueError as error:  # a number of thousands of digits
        raise PipelineError(name, [Problem(None, "", f"not valid TOML: {error}")]) from None
    except RecursionError:
        what = "lists and tables in it are nested too deep"
        raise PipelineError(name, [Problem(None, "", what)]) from None
    reader = _Reader(document, lines, file)
    pipeline = reader.pipeline()
    if reader.problems:
        raise PipelineError(name, reader.problems)
    return pipeline


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean x?"``, or "" if no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


class _Reader:
    """Walks the parsed file once and collects faults."""

    def __init__(
        self, document: Mapping[str, Any], lines: toml_lines.LineIndex, file: Path
    ) -> None:
        self.document = document
        self.lines = lines
        self.file = file
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.data = file.parent
        self.referred: dict[str, str] = {}
        """References outside of connectors, with their values."""
        self.elsewhere = False
        """Whether tasks run on other machines, which may have other folders and files."""

    def pipeline(self) -> Pipeline:
        self._top()
        cluster = self._table("cluster")
        workers = self._workers(cluster)
        self.data = self._data(cluster)
        settings = self._settings(cluster)
        runner = self._runner(cluster, settings)
        given = {**DEFAULTS, **settings, _RUNNER_KEY: runner}
        full = self._full(given)
        spark = replace(self._spark(), driver_timeout_ms=int(full[DRIVER_TIMEOUT]))
        self.elsewhere = runner == RUNNERS[0] and not (spark.master or "").startswith("local")
        connectors = self._connectors(full)
        if runner != "spark" and "spark" in self.document:
            self.notes.append(f"[spark] is not used: runner is {runner}")
        named = "spark" in self.document or "runner" in cluster or _RUNNER_KEY in settings
        if not named and not any(needs_spark(config) for config in connectors.values()):
            self.notes.append(_UNASKED_SPARK)
        return Pipeline(
            file=self.file,
            workers=workers,
            data=self.data,
            log=self._log(),
            runner=runner,
            settings=given,
            spark=spark,
            connectors=connectors,
            notes=self.notes,
        )

    def _problem(self, path: toml_lines.Path, text: str) -> None:
        self.problems.append(Problem(self.lines.line(path), _where(path), text))

    def _top(self) -> None:
        for key, value in self.document.items():
            if key in TABLES:
                continue
            if isinstance(value, dict):
                near = nearest(key, TABLES)
                hint = near or "; a pipeline has [cluster], [log], [spark] and [connectors.<name>]"
                self._problem((key,), f"unknown table{hint}")
            else:
                hint = (
                    "put it under [cluster]"
                    if key in (*_CLUSTER_OWN, *PIPELINE_KEYS)
                    else ("keys stand under [cluster], [log], [spark] or [connectors.<name>]")
                )
                self._problem((key,), f"a key outside of every table; {hint}")
        if "connectors" not in self.document:
            text = "no connectors: name at least one in a table [connectors.<name>]"
            self.problems.append(Problem(None, "", text))

    def _table(self, name: str) -> Mapping[str, Any]:
        found = self.document.get(name, {})
        if isinstance(found, dict) and name == "connectors":
            return found
        if isinstance(found, dict):
            problems: dict[tuple[str, ...], str] = {}
            table = table_checked(found, problems, self.referred)
            for place, text in problems.items():
                self._problem((name, *place), text)
            return table
        self._problem((name,), f"{_seen(found)}, expected a table: [{name}]")
        return {}

    # -- [cluster] --

    def _workers(self, cluster: Mapping[str, Any]) -> int:
        found = cluster.get("workers", 1)
        if isinstance(found, bool) or not isinstance(found, int):
            self._problem(
                ("cluster", "workers"), f"{_seen(found)}, expected a whole number: workers = 2"
            )
            return 1
        if not 1 <= found <= WORKERS_MAX:
            self._problem(("cluster", "workers"), f"{found}, expected 1 to {WORKERS_MAX}")
            return 1
        return found

    def _data(self, cluster: Mapping[str, Any]) -> Path:
        found = cluster.get("data", DEFAULT_DATA)
        if not isinstance(found, str) or not found:
            self._problem(
                ("cluster", "data"),
                f'{_seen(found)}, expected the folder of the embedded log: data = "state"',
            )
            found = DEFAULT_DATA
        folder = self.file.parent / home(found)
        try:
            wrong = unexpanded(str(home(found)))
            if is_there(folder):
                wrong = "" if folder.is_dir() else f"{folder} is a file, expected a folder"
        except (OSError, ValueError) as error:
            wrong = f"{found!r} cannot be looked at: {error}"
        if wrong:
            self._problem(("cluster", "data"), wrong)
        return folder

    def _settings(self, cluster: Mapping[str, Any]) -> dict[str, str]:
        rest = {key: value for key, value in cluster.items() if key not in _CLUSTER_OWN}
        texts, paths = self._flat(rest, ("cluster",))
        known = (*_CLUSTER_OWN, *PIPELINE_KEYS)
        for key in list(texts):
            if key in PIPELINE_KEYS or key.startswith(CONVERTER_PREFIXES):
                continue
            if key in _ELSEWHERE:
                text = f"means nothing here: {_ELSEWHERE[key]}"
            else:
                hint = nearest(key, known) or "; docs/run/pipeline.md lists them"
                text = f"unknown key{hint}"
            self._problem(paths[key], text)
            del texts[key]
        hidden = HiddenValues(self.referred.items())
        try:
            whole = WorkerSettings.parse({**DEFAULTS, **texts}).texts
            problems = {
                k: t for key in CONVERTER_KEYS for k, t in converter_errors(key, whole).items()
            }
        except SettingsError as error:
            problems = error.problems
        for key, text in problems.items():
            self._problem(paths.get(key, ("cluster",)), hidden.hide(_told(key, paths, text)))
        return texts

    def _full(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """Return `given` with Connect's defaults. If it is wrong (reported before), just
        defaults."""
        try:
            return WorkerSettings.parse(given).texts
        except SettingsError:
            runner = given[_RUNNER_KEY]
            return WorkerSettings.parse({**DEFAULTS, _RUNNER_KEY: runner}).texts

    def _runner(self, cluster: Mapping[str, Any], settings: Mapping[str, str]) -> str:
        found = cluster.get("runner", settings.get(_RUNNER_KEY, RUNNERS[0]))
        if found not in RUNNERS:
            choices = ", ".join(f'"{name}"' for name in RUNNERS)
            near = nearest(found, RUNNERS) if isinstance(found, str) else ""
            if "runner" in cluster:  # otherwise the setting was reported already
                self._problem(
                    ("cluster", "runner"), f"{_seen(found)}, expected one of {choices}{near}"
                )
            return RUNNERS[0]
        if settings.get(_RUNNER_KEY, found) != found:
            path = ("cluster", *_RUNNER_KEY.split("."))
            self._problem(path, f"{settings[_RUNNER_KEY]}, but runner is {found}")
        return str(found)

    # -- [log] --

    def _log(self) -> LogLimits:
        table = self._table("log")
        topics = table.get("topics", {})
        own, paths = self._flat({k: v for k, v in table.items() if k != "topics"}, ("log",))
        texts = dict(own)
        if not isinstance(topics, dict):
            self._problem(("log", "topics"), f"{_seen(topics)}, expected [log.topics.<name>]")
            topics = {}
        for topic, inner in topics.items():
            path = ("log", "topics", topic)
            if not isinstance(inner, dict):
                self._problem(path, f"{_seen(inner)}, expected a table: [log.topics.{_key(topic)}]")
                continue
            flat, places = self._flat(inner, path)
            for key, text in flat.items():
                texts[f"topics.{topic}.{key}"] = text
                paths[f"topics.{topic}.{key}"] = places[key]
        try:
            return parse_limits(texts)
        except LimitsError as error:
            for key, text in error.problems.items():
                hint = nearest(key, LOG_KEYS) if text.startswith("unknown key") else ""
                self._problem(paths[key], f"{text}{hint}")
            return LogLimits()

    # -- [spark] --

    def _spark(self) -> SparkSettings:
        table = self._table("spark")
        for key in table:
            if key not in _SPARK_OWN:
                hint = nearest(key, _SPARK_OWN) or "; known are master, remote, host and conf"
                if key.startswith("spark"):
                    hint = "; Spark's own settings stand in the table [spark.conf]"
                self._problem(("spark", key), f"unknown key{hint}")
        address = {"master": "local[2]", "remote": "sc://host:15002", "host": "10.0.0.5"}
        for key, example in address.items():
            found = table.get(key)
            if found is not None and (not isinstance(found, str) or not found):
                self._problem(
                    ("spark", key), f'{_seen(found)}, expected a text: {key} = "{example}"'
                )
                return SparkSettings()
        master, remote = table.get("master"), table.get("remote")
        if master is not None and remote is not None:
            self._problem(
                ("spark", "remote"),
                "stands beside master; keep master (a Spark of our own) or remote (one that runs)",
            )
        if remote is not None and not str(remote).startswith("sc://"):
            self._problem(("spark", "remote"), f'"{remote}", expected sc://host:port')
        if remote is None and master is None:
            master = DEFAULT_MASTER
        return SparkSettings(master, remote, self._spark_conf(table), table.get("host", ""))

    def _spark_conf(self, table: Mapping[str, Any]) -> dict[str, str]:
        conf = table.get("conf", {})
        if not isinstance(conf, dict):
            self._problem(("spark", "conf"), f"{_seen(conf)}, expected a table: [spark.conf]")
            return {}
        texts, paths = self._flat(conf, ("spark", "conf"))
        for key in texts:
            if not key.startswith("spark."):
                self._problem(paths[key], f"settings of Spark begin with spark.: spark.{key}")
        return texts

    # -- [connectors] --

    def _connectors(self, settings: Mapping[str, str]) -> dict[str, dict[str, str]]:
        configs: dict[str, dict[str, str]] = {}
        for name, table in self._table("connectors").items():
            path = ("connectors", name)
            if not isinstance(table, dict):
                self._problem(path, f"{_seen(table)}, expected a table: [connectors.{_key(name)}]")
                continue
            bad = re.search(r"[\x00-\x1f\x7f/\\]", name)
            if bad or not name.strip():
                what = f"{bad.group()!r} in the name of a connector" if bad else "an empty name"
                self._problem(path, f"{what}; letters, digits, dots, dashes and _ are safe")
                continue
            configs[name] = self._connector(name, table, settings)
        return configs

    def _connector(
        self, name: str, table: Mapping[str, Any], settings: Mapping[str, str]
    ) -> dict[str, str]:
        path = ("connectors", name)
        before = len(self.problems)
        texts, paths = self._flat(table, path)
        if texts.get("name", name) != name:
            self._problem(
                paths["name"], f'"{texts["name"]}", but the table names the connector {name}'
            )
        config = home_expanded({"name": name, **texts})
        if "connector.class" not in texts:
            text = "no connector.class; headgate plugins lists the classes that are installed"
            if "class" in texts:
                self._problem(paths["class"], 'the key is "connector.class", not class')
                return config
            inner = [key for key, value in table.items() if isinstance(value, dict)]
            if inner:
                whole = _key(f"{name}.{inner[0]}")
                text += f". A name with a dot is quoted: [connectors.{whole}]"
            self._problem(path, text)
        elif len(self.problems) == before:
            for key, text in self._connector_problems(config, settings):
                self._problem(paths.get(key, (*path, key) if key else path), text)
        return config

    def _connector_problems(
        self, config: Mapping[str, str], settings: Mapping[str, str]
    ) -> Iterator[tuple[str, str]]:
        """Yield faults of a connector's config, by key: its references, what its class reports, and
        the folders and files that it names."""
        found, hidden, problems = checked(config)
        if problems:
            yield from problems.items()
            return
        told = {"connector.class"}
        for key, text in connector_problems(found, settings, self.file.parent):
            told.add(key)
            yield key, hidden.hide(text)
        said = look_at(found, self.file.parent, made=self.data)
        if said is None or said.key in told:
            return
        if said.fault and not self.elsewhere:
            yield said.key, hidden.hide(said.text)
        else:
            self.notes.append(f"{config['name']}: {hidden.hide(said.text)}")

    # -- values --

    def _flat(
        self, table: Mapping[str, Any], path: toml_lines.Path
    ) -> tuple[dict[str, str], dict[str, toml_lines.Path]]:
        """Return values as Connect's strings, and where each key stands. Dots join table keys."""
        texts: dict[str, str] = {}
        paths: dict[str, toml_lines.Path] = {}

        def walk(inner: Mapping[str, Any], prefix: str, here: toml_lines.Path) -> None:
            for key, value in inner.items():
                full, place = f"{prefix}{key}", (*here, key)
                if isinstance(value, dict):
                    walk(value, f"{full}.", place)
                    continue
                if full in texts:
                    first = self.lines.line(paths[full])
                    self._problem(place, f"{full} stands in line {first} already; keep one of them")
                    continue
                try:
                    texts[full] = connect_text(value)
                    paths[full] = place
                except ValueError as error:
                    self._problem(place, str(error))

        walk(table, "", path)
        return texts, paths


def connect_text(value: object) -> str:
    """Return the value of a TOML key as Connect's configs have it: always a string.

    Raises:
        ValueError: a list whose items cannot be joined by commas and split again.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, list):
        for item in value:
            if isinstance(item, (list, dict)):
                what = f"a list that holds {_seen(item)}, expected texts and numbers"
                raise ValueError(what)  # noqa: TRY004 (of the user's file, not of our caller)
            if isinstance(item, str) and "," in item:
                raise ValueError(
                    f'"{item}" in a list holds a comma, at which Connect would split it'
                )
        return ",".join(connect_text(item) for item in value)
    raise ValueError(f"{_seen(value)}, expected a text, a number, true or false, or a list")


_POSITION = re.compile(r"^(?P<what>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")


def _syntax(error: tomllib.TOMLDecodeError, lines: toml_lines.LineIndex) -> Problem:
    found = _POSITION.match(str(error))
    what, number = (found["what"], found["line"]) if found else (str(error), None)
    if lines.repeated:
        path, first, again = lines.repeated[0]
        if len(path) == 2 and path[0] == "connectors":
            text = f"two connectors named {path[1]}, the first in line {first}; rename one of them"
        else:
            text = f"stands twice, first in line {first}; keep one of them"
        return Problem(again, _where(path), text)
    hint = _syntax_hint(what)
    where = " at its end" if found is not None and number is None else ""
    return Problem(int(number) if number else None, "", f"not valid TOML{where}: {what}{hint}")


def _syntax_hint(what: str) -> str:
    if what.startswith("Invalid value"):
        return '; texts are quoted: path = "in"'
    if what.startswith("Illegal character '\\n'"):
        return "; a text ends with its quote in the same line"
    if what.startswith("Expected '=' after a key"):
        return "; a line is key = value or [table]"
    if what.startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate", "Cannot redefine")):
        return (
            "; it stands in the file already, as a value or as a table. A key that begins like "
            'another one is quoted: "transforms.x.type" beside transforms'
        )
    return ""


def _told(key: str, paths: Mapping[str, toml_lines.Path], text: str) -> str:
    return text if key in paths else f"{key}: {text}"


def _where(path: toml_lines.Path) -> str:
    """Return ``[connectors.events] tasks.max`` for a key, ``[cluster]`` for a table."""
    if path[0] == "connectors":
        table, rest = path[:2], path[2:]
    elif path[0] in TABLES:
        table, rest = path[:1], path[1:]
    else:
        table, rest = (), path
    head = f"[{'.'.join(_key(part) for part in table)}]" if table else ""
    return " ".join(part for part in (head, ".".join(rest)) if part)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _seen(value: object) -> str:
    """Return a value as an error shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'the text "{value}"' if value else "an empty text"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return str(value)


def _no_such_file(file: Path) -> str:
    text = "no such file"
    if not file.parent.is_dir():
        return f"{text}: the folder {file.parent} does not exist"
    there = sorted(found.name for found in file.parent.glob("*.toml"))
    if there:
        return f"{text}; {file.parent} has {', '.join(there[:5])}"
    return f"{text}; headgate init makes one to begin from"
