"""The chain of transforms that a connector config names, each with its predicate.

Source: `TransformationStage`, `TransformationChain` (4.3.1).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from headgate.connector.api import SinkRecord, SourceRecord, Transform
from headgate.connector.config import ConfigError, Type, parse_type
from headgate.connector.transforms.base import RecordTransform
from headgate.connector.transforms.columns import RowsAtOnce
from headgate.connector.transforms.predicates import Predicate
from headgate.connector.transforms.registry import PREDICATES, TRANSFORMS, unknown_class


class Stage:
    """A transform that is applied if its predicate says so."""

    def __init__(self, transform: Transform, predicate: Predicate, negate: bool) -> None:
        self._transform = transform
        self._predicate = predicate
        self._negate = negate

    @property
    def transform(self) -> Transform:
        return self._transform

    @property
    def predicate(self) -> Predicate:
        return self._predicate

    def applies(self, record: SourceRecord | SinkRecord) -> bool:
        """Return whether the transform is applied to `record`."""
        return self._predicate.test(record) is not self._negate

    def configure(self, config: Mapping[str, str]) -> None:
        self._transform.configure(config)

    def apply_source(self, record: SourceRecord) -> SourceRecord | None:
        if self._predicate.test(record) is self._negate:
            return record
        return self._transform.apply_source(record)

    def apply_sink(self, record: SinkRecord) -> SinkRecord | None:
        if self._predicate.test(record) is self._negate:
            return record
        return self._transform.apply_sink(record)


def make_transforms(config: Mapping[str, str]) -> list[Transform]:
    """Return the chain of a connector config, in the order of `transforms`; empty if there is none.

    Raises:
        ConfigError: A class is unknown, a value is wrong, or a predicate is not defined.
    """
    aliases: list[str] = parse_type("transforms", config.get("transforms"), Type.LIST) or []
    return [_stage(config, alias) for alias in aliases]


def transform_source(chain: Sequence[Transform], record: SourceRecord) -> SourceRecord | None:
    """Apply `chain` to `record`; return None if a transform drops it. Raises what transforms
    raise."""
    result: SourceRecord | None = record
    for transform in chain:
        if result is None:
            return None
        result = transform.apply_source(result)
    return result


def transform_sink(chain: Sequence[Transform], record: SinkRecord) -> SinkRecord | None:
    result: SinkRecord | None = record
    for transform in chain:
        if result is None:
            return None
        result = transform.apply_sink(result)
    return result


def by_topic(chain: Sequence[object]) -> bool:
    """Return whether all members of `chain` read and change only topic and headers."""
    members: list[object] = []
    for one in chain:
        members += (one.transform, one.predicate) if isinstance(one, Stage) else (one,)
    return all(vars(type(member)).get("BY_TOPIC", False) for member in members)


def takes_rows_at_once(chain: Sequence[object]) -> bool:
    """Return whether no member of `chain` needs records."""
    members = [one.transform if isinstance(one, Stage) else one for one in chain]
    return all(
        isinstance(one, RecordTransform) and one.rows_at_once() is not RowsAtOnce.NEVER
        for one in members
    )


def _stage(config: Mapping[str, str], alias: str) -> Transform:
    prefix = f"transforms.{alias}."
    own = _with_prefix(config, prefix)
    transform = _made(TRANSFORMS, prefix + "type", own.pop("type", None))
    named = own.pop("predicate", None)
    negate = parse_type(prefix + "negate", own.pop("negate", "false"), Type.BOOLEAN)
    transform.configure(own)
    if named is None:
        return transform
    prefix = f"predicates.{named.strip()}."
    settings = _with_prefix(config, prefix)
    predicate = _made(PREDICATES, prefix + "type", settings.pop("type", None))
    predicate.configure(settings)
    return Stage(transform, predicate, negate)


Made = TypeVar("Made")


def _made(known: Mapping[str, Callable[[], Made]], key: str, name: Any) -> Made:
    if name is None:
        raise ConfigError(f'Missing required configuration "{key}" which has no default value.')
    found = known.get(name.strip())
    if found is None:
        raise unknown_class(key, name.strip(), known)
    return found()


def _with_prefix(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key[len(prefix) :]: text for key, text in config.items() if key.startswith(prefix)}
