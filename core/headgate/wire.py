"""Codec for messages between workers, tasks and clients: dataclasses and named tuples as JSON.

An object is ``{"type": "<class name>", ...fields}``. Decoding follows the type hints: a missing
field takes its default, an unknown field is ignored (the peer may be newer), and a wrong type
raises a `WireError` that names the field.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from headgate.errors import CoreError

T = TypeVar("T")
_AS_IT_IS: Final = frozenset({str, int, bool, float})
"""Types whose values are encoded as they are. Most fields have one of them, so they are checked
first."""


class WireError(CoreError):
    """A message does not have the expected form."""


def dumps(message: object) -> bytes:
    """Return `message`, a dataclass, as one line of JSON."""
    return json.dumps(_encode(message), separators=(",", ":"), ensure_ascii=False).encode()


def loads(union: Any, data: bytes) -> Any:
    """Return the message in `data`. It must be an instance of `union` (a dataclass or a union of
    dataclasses).

    Raises:
        WireError: The message is not one of them, or its JSON is nested too deep to be read.
    """
    try:
        raw = json.loads(data)
        return _decode(union, raw, "message")
    except RecursionError as error:
        raise WireError(f"JSON that is too deep: {data[:80]!r}") from error
    except ValueError as error:
        raise WireError(f"not JSON: {data[:80]!r}") from error


def plain(message: object) -> Any:
    """Return `message` as plain values that JSON can carry: dicts, lists, strings, numbers."""
    return _encode(message)


def from_plain(kind: type[T], raw: Any) -> T:
    return cast(T, _decode(kind, raw, kind.__name__))


def from_plain_union(union: Any, raw: Any) -> Any:
    """Return the message in `raw`, which `plain` made. It must be an instance of `union`."""
    return _decode(union, raw, "message")


def _encode(value: object) -> Any:
    if value is None or isinstance(value, (bool, int, str, float)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    kind: Any = type(value)
    if _has_fields(kind):
        out: dict[str, Any] = {"type": kind.__name__}
        for name, _ in _fields(kind):
            item = getattr(value, name)
            out[name] = item if type(item) in _AS_IT_IS else _encode(item)
        return out
    if isinstance(value, Mapping):
        items = cast(Mapping[object, object], value)
        return {str(key): _encode(item) for key, item in items.items()}
    if isinstance(value, (tuple, list)):
        return [_encode(item) for item in cast(tuple[object, ...], value)]
    raise WireError(f"{type(value).__name__} cannot travel: {value!r}")


def _decode(hint: Any, raw: Any, where: str) -> Any:
    origin = get_origin(hint)
    if hint is Any or hint is object:
        return raw
    if origin is Literal:
        if raw not in get_args(hint):
            raise WireError(f"{where}: {raw!r}, expected one of {get_args(hint)}")
        return raw
    if origin in (Union, UnionType):
        return _decode_union(get_args(hint), raw, where)
    if isinstance(hint, type) and _has_fields(hint):
        return _decode_object(hint, raw, where)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(raw)
        except ValueError as error:
            raise WireError(f"{where}: {raw!r} is no {hint.__name__}") from error
    if hint is bytes:
        return base64.b64decode(_checked(raw, str, where))
    if hint is float:
        return float(_checked(raw, (int, float), where))
    if hint in (str, int, bool):
        return _checked(raw, hint, where)
    if hint is NoneType:
        return None
    if origin is tuple:
        items = cast(list[Any], _checked(raw, list, where))
        args = get_args(hint)
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_decode(args[0], item, where) for item in items)
        if len(args) != len(items):
            raise WireError(f"{where}: {len(items)} items, expected {len(args)}")
        return tuple(_decode(arg, item, where) for arg, item in zip(args, items, strict=True))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        key_hint, value_hint = get_args(hint)
        table = cast(dict[str, Any], _checked(raw, dict, where))
        return {
            (int(key) if key_hint is int else key): _decode(value_hint, item, f"{where}.{key}")
            for key, item in table.items()
        }
    raise WireError(f"{where}: no rule for {hint!r}")


def _decode_union(options: tuple[Any, ...], raw: Any, where: str) -> Any:
    if raw is None and NoneType in options:
        return None
    if isinstance(raw, dict) and "type" in raw:
        kind = cast(dict[str, Any], raw)["type"]
        for option in options:
            if getattr(option, "__name__", None) == kind:
                return _decode(option, raw, where)
        names = ", ".join(sorted(getattr(option, "__name__", str(option)) for option in options))
        raise WireError(f"{where}: type {kind!r}, expected one of {names}")
    for option in options:
        if option is NoneType:
            continue
        try:
            return _decode(option, raw, where)
        except WireError:
            continue
    raise WireError(f"{where}: {raw!r} fits none of {options}")


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _has_fields(kind: Any) -> bool:
    return is_dataclass(kind) or hasattr(kind, "_fields")


@lru_cache(maxsize=256)
def _fields(kind: Any) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a dataclass or named tuple: the name, and whether a value is
    required."""
    if is_dataclass(kind):
        return tuple(
            (item.name, item.default is MISSING and item.default_factory is MISSING)
            for item in fields(kind)
        )
    return tuple((name, name not in kind._field_defaults) for name in kind._fields)


def _decode_object(kind: Any, raw: Any, where: str) -> Any:
    table = cast(dict[str, Any], _checked(raw, dict, where))
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for name, required in _fields(kind):
        if name in table:
            hint, item = hints[name], table[name]
            known = type(item) is hint and hint in _AS_IT_IS
            values[name] = item if known else _decode(hint, item, f"{kind.__name__}.{name}")
        elif required:
            raise WireError(f"{where}: {kind.__name__} without {name}")
    return kind(**values)


def _checked(raw: Any, kind: Any, where: str) -> Any:
    if not isinstance(raw, kind) or (isinstance(raw, bool) and kind is int):
        raise WireError(f"{where}: {raw!r}, expected {getattr(kind, '__name__', kind)}")
    return raw
