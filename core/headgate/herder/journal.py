"""A journal of one herder: every command with its time, as lines that replay to the same decisions.

A user's bug arrives as a file. The first line has the herder's settings, each further line one
command. Secrets are left out: values of configs that no decision reads, session keys and traces
stand there as digests, so that equal values stay equal. `replay_journal` gives the commands to a
new herder. What it decides is what the first one decided, word for word, as `Journal.decided` and
`shown` have it.

Source: dask's `stimulus_log` is the model. Kafka Connect has none.
"""

import base64
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from headgate import wire
from headgate.connector.restart_policy import KEYS as RESTART_KEYS
from headgate.errors import CoreError
from headgate.herder.calls import config_digest
from headgate.herder.herder import Herder
from headgate.herder.messages import AppendConfig, Command, Effect, Tick
from headgate.herder.settings import HerderSettings
from headgate.topics.config_records import SESSION_KEY

VERSION: Final = 1
SHOWN: Final = frozenset(
    {
        *("name", "connector.class", "task.class", "tasks.max", "tasks.max.enforce"),
        *("topics", "topics.regex", *RESTART_KEYS),
    }
)
"""Keys of configs whose values decisions read. Every other value is a digest."""
_CONFIGS: Final = frozenset(
    {"changes", "config", "configs", "connector_config", "merged", "properties", "task_config"}
)
_TEXTS: Final = frozenset({"trace"})
_KEY_RECORD: Final = "SessionKeyRecord"
_KEY_TYPES: Final = frozenset({"SessionKeyChanged", "SessionKeyMade", _KEY_RECORD})
_LEFT_OUT: Final = frozenset({"worker_settings", "transport", "hidden"})


class JournalError(CoreError):
    """A line that is none of a journal; the message has its number."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a journal, and what the herder decided on it."""

    now_ms: int
    command: Command
    effects: tuple[Effect, ...]


class Journal:
    """Makes the lines of one herder's journal.

    Args:
        salt: makes digests useless to others who guess values; random, kept nowhere.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._digests: dict[str, str] = {}
        """Digest of a connector's config as it is -> of the same config as the journal has it."""

    def first_line(self, settings: HerderSettings, now_ms: int, wall_ms: int) -> str:
        table = cast(dict[str, Any], wire.plain(settings))
        for name in _LEFT_OUT & table.keys():
            table[name] = {}
        first = {"version": VERSION, "now_ms": now_ms, "wall_ms": wall_ms, "settings": table}
        return json.dumps(first, separators=(",", ":"), ensure_ascii=False)

    def line(self, now_ms: int, command: Command) -> str:
        if isinstance(command, Tick):
            return f'{{"now_ms":{now_ms}}}'
        safe = self._safe(wire.plain(command))
        entry = {"now_ms": now_ms, "command": safe}
        return json.dumps(entry, separators=(",", ":"), ensure_ascii=False)

    def decided(self, effects: Iterable[Effect]) -> list[Any]:
        """A decision as JSON can carry it. Secrets are left out as in the line of its command, so
        it is equal to `shown` of what a replay decides."""
        return cast(list[Any], self._safe(shown(effects)))

    def _safe(self, value: object) -> Any:
        if isinstance(value, list):
            items = cast(list[object], value)
            return [self._safe(item) for item in items]
        if not isinstance(value, dict):
            return value
        table = cast(dict[str, Any], value)
        out: dict[str, Any] = {}
        for name, item in table.items():
            if name in _CONFIGS:
                out[name] = self._configs(item)
            elif name in _LEFT_OUT:
                out[name] = {}
            elif name in _TEXTS and isinstance(item, str):
                out[name] = self._digest(item)
            elif name == "key" and table.get("type") in _KEY_TYPES:
                out[name] = base64.b64encode(self._mac(str(item))).decode("ascii")
            elif name == "made_of" and isinstance(item, str):
                out[name] = self._digests.get(item, item)
            else:
                out[name] = self._safe(item)
        return out

    def _configs(self, value: object) -> Any:
        if isinstance(value, list):
            items = cast(list[object], value)
            return [self._configs(item) for item in items]
        if not isinstance(value, dict):
            return value
        config = cast(dict[str, str | None], value)
        safe = {
            key: text if text is None or key in SHOWN else self._digest(text)
            for key, text in config.items()
        }
        self._digests[config_digest(config)] = config_digest(safe)
        return safe

    def _digest(self, text: str) -> str:
        return f"<{self._mac(text).hex()[:12]}>"

    def _mac(self, text: str) -> bytes:
        return hmac.digest(self._salt, text.encode("utf-8", "surrogatepass"), "sha256")


def replay_journal(lines: Iterable[str]) -> Iterator[Step]:
    """What a new herder decides on the commands of a journal, one step after the other. A last line
    that was cut off, as when its worker was killed, ends the replay.

    Raises:
        JournalError: a line that is none of a journal of this version.
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
    """`effects` as JSON can carry them; records for the config topic as the JSON that they hold."""
    return [_shown(effect) for effect in effects]


def _shown(effect: Effect) -> Any:
    out = wire.plain(effect)
    if isinstance(effect, AppendConfig):
        out["records"] = [[key, _opened(key, value)] for key, value in effect.records]
    return out


def _opened(key: str, value: bytes | None) -> Any:
    if value is None:
        return None
    found = json.loads(value)
    return {"type": _KEY_RECORD, **found} if key == SESSION_KEY else found


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
