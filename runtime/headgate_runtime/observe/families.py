"""Families of samples for Prometheus, filled one sample after the other. They are made as text, or
as objects of prometheus-client, which cost several times the CPU and also speak OpenMetrics."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.utils import floatToGoString

_Family: TypeAlias = GaugeMetricFamily | CounterMetricFamily | SummaryMetricFamily
_NUMBERS: Final = 4_096
"""Values whose text is cached: most samples are 0, 1 or a small count."""
_number: Callable[[float], str] = lru_cache(_NUMBERS)(floatToGoString)


class Labels(dict[str, str]):
    """Labels of samples. Their text is made once."""

    __slots__ = ("_pairs", "_text")

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self._pairs: list[str] | None = None
        self._text: str | None = None

    def plus(self, name: str, value: str) -> "Labels":
        made = Labels({**self, name: value})
        made._pairs = sorted((*self._texts(), _pair(name, value)))
        return made

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = f"{{{','.join(self._texts())}}}" if self else ""
        return self._text

    def _texts(self) -> list[str]:
        if self._pairs is None:
            self._pairs = sorted(_pair(name, value) for name, value in self.items())
        return self._pairs


def _pair(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{name}="{escaped}"'


class Table(Protocol):
    """Families by name, in the order in which they first came."""

    def gauge(self, name: str, doc: str, labels: Labels, value: float) -> None: ...

    def counter(self, name: str, doc: str, labels: Labels, value: float) -> None: ...

    def summary(self, name: str, doc: str, labels: Labels, count: int, total: float) -> None: ...


class TextFamilies:
    """A `Table` in Prometheus' text format, byte for byte as prometheus-client makes it of
    `Families`. Halves of surrogate pairs, which names may hold, become "?"."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def gauge(self, name: str, doc: str, labels: Labels, value: float) -> None:
        lines = self._families.get(name)
        if lines is None:
            lines = self._add(name, name, doc, "gauge")
        lines.append(f"{name}{labels.text} {_number(value)}\n")

    def counter(self, name: str, doc: str, labels: Labels, value: float) -> None:
        lines = self._families.get(name)
        if lines is None:
            lines = self._add(name, f"{name}_total", doc, "counter")
        lines.append(f"{name}_total{labels.text} {_number(value)}\n")

    def summary(self, name: str, doc: str, labels: Labels, count: int, total: float) -> None:
        lines = self._families.get(name)
        if lines is None:
            lines = self._add(name, name, doc, "summary")
        lines.append(
            f"{name}_count{labels.text} {_number(count)}\n"
            f"{name}_sum{labels.text} {_number(total)}\n"
        )

    def text(self) -> bytes:
        found = "".join(["".join(lines) for lines in self._families.values()])
        return found.encode("utf-8", "replace")

    def _add(self, name: str, shown: str, doc: str, kind: str) -> list[str]:
        lines = self._families[name] = [f"# HELP {shown} {doc}\n# TYPE {shown} {kind}\n"]
        return lines


class Families:
    """A `Table` of prometheus-client's objects."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def gauge(self, name: str, doc: str, labels: Labels, value: float) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = GaugeMetricFamily(name, doc, labels=list(labels))
        assert isinstance(family, GaugeMetricFamily)
        family.add_metric(list(labels.values()), value)

    def counter(self, name: str, doc: str, labels: Labels, value: float) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = CounterMetricFamily(name, doc, labels=list(labels))
        assert isinstance(family, CounterMetricFamily)
        family.add_metric(list(labels.values()), value)

    def summary(self, name: str, doc: str, labels: Labels, count: int, total: float) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = SummaryMetricFamily(name, doc, labels=list(labels))
        assert isinstance(family, SummaryMetricFamily)
        family.add_metric(list(labels.values()), count, total)

    def found(self) -> Iterator[Metric]:
        yield from self._families.values()
