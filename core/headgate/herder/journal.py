"""A journal of one herder: every command with its time, as lines that replay to the same decisions.

A user's bug report can bring it as a file. The first line has the herder's settings, each further
line one command. Secrets are left out: values of configs that no decision reads, session keys, and
the texts of errors. Digests stand for them, so that equal values stay equal. Offsets are written as
they are.

`replay_journal` gives the commands to a new herder, which makes the same decisions, word for word.
`Journal.decided` and `shown` bring both into a form to compare, without what answers tell and
without texts of errors.

Source: dask's `stimulus_log` is the model. Kafka Connect has none.
"""

import base64
import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from operator import is_
from typing import Any, Final, TypeAlias, cast

from headgate import wire
from headgate.connector.restart_policy import ERRORS, RestartPolicy, restart_policy
from headgate.connector.restart_policy import KEYS as RESTART_KEYS
from headgate.errors import CoreError
from headgate.herder.calls import ErrorKind, Failure, Success, config_digest
from headgate.herder.herder import Herder
from headgate.herder.messages import (
    AppendConfig,
    Command,
    Effect,
    SessionKeyMade,
    Tick,
    WriteStatus,
)
from headgate.herder.settings import HerderSettings
from headgate.topics.config_events import SessionKeyChanged
from headgate.topics.config_records import decode
from headgate.topics.status import decode_status

VERSION: Final = 1
SHOWN: Final = frozenset(
    {
        *("name", "connector.class", "task.class", "tasks.max", "tasks.max.enforce"),
        *("topics", "topics.regex", *RESTART_KEYS),
    }
)
"""Keys of configs whose values decisions read. Every other value is a digest."""
_CONFIGS: Final = frozenset({"changes", "config", "configs", "connector_config", "task_config"})
"""Fields of messages that hold configs. The same words may be keys of plain data, which are not
meant."""
_TEXTS: Final = frozenset(
    {"abandon", "detail", "error", "errors", "message", "quarantined", "reason", "trace"}
)
"""Fields of messages that hold texts, which may quote what connectors and clients have said."""
_LEFT_OUT: Final = frozenset({"worker_settings", "transport", "hidden"})
_NO_TEXT: Final = "<left out>"
_Rule: TypeAlias = Callable[[object, str, object], object]
"""Returns what the journal has for a field of a message. Arguments: the message, the field's name
and its value."""


class JournalError(CoreError):
    """A line is not one of a journal. The message has its number."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a journal, and what the herder decided on it."""

    now_ms: int
    command: Command
    effects: tuple[Effect, ...]


class Journal:
    """Makes the lines of one herder's journal.

    Args:
        salt: random bytes, kept nowhere. Without them, guessed values cannot be compared with
            digests.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._digests: dict[str, str] = {}
        """Digest of a connector's config -> digest of the same config as the journal has it."""
        self._words: dict[str, None] = {}
        """Words that restart policies look for in error texts. A text's digest is followed by those
        it has."""

    def first_line(self, settings: HerderSettings, now_ms: int, wall_ms: int) -> str:
        self._words.update(dict.fromkeys(settings.restart.errors))
        table = cast(dict[str, Any], wire.plain(settings))
        for name in _LEFT_OUT & table.keys():
            table[name] = {}
        first = {"version": VERSION, "now_ms": now_ms, "wall_ms": wall_ms, "settings": table}
        return json.dumps(first, separators=(",", ":"), ensure_ascii=False)

    def line(self, now_ms: int, command: Command) -> str:
        if isinstance(command, Tick):
            return f'{{"now_ms":{now_ms}}}'
        entry = {"now_ms": now_ms, "command": wire.plain(_changed(command, self._safe))}
        return json.dumps(entry, separators=(",", ":"), ensure_ascii=False)

    def decided(self, effects: Iterable[Effect]) -> list[Any]:
        """Return a decision as plain data. Secrets are left out as in the line of its command, so
        it is equal to `shown` of what a replay decides."""
        return [_shown(effect, self._safe, _without_texts) for effect in effects]

    def _safe(self, message: object, name: str, value: object) -> object:
        if name in _CONFIGS:
            return self._configs(value)
        if name in _LEFT_OUT:
            return {}
        if name == "value" and isinstance(message, Success):
            return None if value is None else _NO_TEXT
        if name in _TEXTS:
            # Decisions read how the text of a conflict begins. Only workers write such texts.
            conflict = isinstance(message, Failure) and message.kind is ErrorKind.CONFLICT
            return value if conflict else _each_text(value, self._text)
        if name == "key" and isinstance(message, (SessionKeyMade, SessionKeyChanged)):
            return self._mac(base64.b64encode(message.key).decode("ascii"))
        if name == "made_of" and isinstance(value, str):
            return self._digests.get(value, value)
        return _changed(value, self._safe)

    def _configs(self, value: object) -> object:
        if isinstance(value, tuple):
            return tuple(self._configs(each) for each in cast(tuple[object, ...], value))
        if not isinstance(value, Mapping):
            return value
        config = cast(Mapping[str, Any], value)
        safe = {
            key: text
            if text is None or (key in SHOWN and isinstance(text, str))
            else self._digest(text)
            for key, text in config.items()
        }
        if isinstance(errors := config.get(ERRORS), str):
            found = restart_policy({ERRORS: errors}, RestartPolicy()).errors
            self._words.update(dict.fromkeys(found))
        self._digests[config_digest(config)] = config_digest(safe)
        return safe

    def _text(self, text: str) -> str:
        found = [word for word in self._words if word in text]
        return " ".join([self._digest(text), *found])

    def _digest(self, text: object) -> str:
        known = text if isinstance(text, str) else json.dumps(text, sort_keys=True, default=str)
        return f"<{self._mac(known).hex()[:12]}>"

    def _mac(self, text: str) -> bytes:
        return hmac.digest(self._salt, text.encode("utf-8", "surrogatepass"), "sha256")


def replay_journal(lines: Iterable[str]) -> Iterator[Step]:
    """Give the commands of a journal to a new herder, and yield its decisions step by step. A last
    line that was cut off, as when its worker was killed, ends the replay.

    Raises:
        JournalError: a line is not one of a journal of this version.
    """
    numbered = enumerate(lines, 1)
    number, text = next(numbered, (0, ""))
    first = _parsed(number, text)
    if first.get("version") != VERSION or not isinstance(first.get("settings"), Mapping):
        raise JournalError(
            f"line {number}: expected the beginning of a journal of version {VERSION}"
        )
    try:
        settings = wire.from_plain(HerderSettings, first["settings"])
        now_ms, wall_ms = int(first["now_ms"]), int(first["wall_ms"])
    except (wire.WireError, KeyError, TypeError, ValueError) as error:
        raise JournalError(f"line {number}: {error}") from None
    herder = Herder(settings, now_ms, wall_ms=wall_ms)
    for number, text in numbered:
        if not text.endswith("\n") and not _complete(text):
            return
        entry = _parsed(number, text)
        try:
            now_ms = int(entry["now_ms"])
            raw = entry.get("command")
            command: Command = Tick() if raw is None else wire.from_plain_union(Command, raw)
        except (wire.WireError, KeyError, TypeError, ValueError) as error:
            raise JournalError(f"line {number}: {error}") from None
        yield Step(now_ms, command, tuple(herder.handle(now_ms, command)))


def shown(effects: Iterable[Effect]) -> list[Any]:
    """Return `effects` as plain data. Records of the config topic and the status topic are decoded.
    What answers tell and texts of errors are left out."""
    return [_shown(effect, _without_texts) for effect in effects]


def _shown(effect: Effect, *rules: _Rule) -> Any:
    def plain(message: object) -> Any:
        for rule in rules:
            message = _changed(message, rule)
        return wire.plain(message)

    out = plain(effect)
    if isinstance(effect, AppendConfig):
        events = [(key, value and decode(0, key, value)) for key, value in effect.records]
        out["records"] = [[key, plain(event)] for key, event in events]
    elif isinstance(effect, WriteStatus):
        out["value"] = plain(effect.value and decode_status(effect.key, effect.value))
    return out


def _without_texts(message: object, name: str, value: object) -> object:
    """Leave out texts. They are made of values of which the journal has digests, so a replay makes
    others."""
    if name == "value" and isinstance(message, Success):
        return None if value is None else _NO_TEXT
    if name in _TEXTS:
        return _each_text(value, lambda _: _NO_TEXT)
    return _changed(value, _without_texts)


def _changed(value: object, rule: _Rule) -> Any:
    """Return `value` with `rule` applied to each field of the messages in it. Plain data stays as
    it is."""
    kind: Any = type(value)
    if kind is tuple:
        items = cast(tuple[object, ...], value)
        new_items = tuple(_changed(each, rule) for each in items)
        return items if all(map(is_, items, new_items)) else new_items
    if not is_dataclass(kind):
        return value
    changes: dict[str, Any] = {}
    for field in fields(kind):
        old = getattr(value, field.name)
        new = rule(value, field.name, old)
        if new is not old:
            changes[field.name] = new
    return replace(cast(Any, value), **changes) if changes else value


def _each_text(value: object, change: Callable[[str], str]) -> object:
    """Apply `change` to each text in `value`. Codes of errors, None and empty texts stay as they
    are."""
    if isinstance(value, tuple):
        return tuple(_each_text(each, change) for each in cast(tuple[object, ...], value))
    if isinstance(value, str) and value and not isinstance(value, Enum):
        return change(value)
    return value


def _complete(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _parsed(number: int, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise JournalError(f"line {number}: not JSON: {text[:60]!r}") from None
    if not isinstance(found, dict):
        raise JournalError(f"line {number}: {text[:60]!r}, expected an object")
    return cast(dict[str, Any], found)
