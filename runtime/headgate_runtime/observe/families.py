"""Families of samples for Prometheus, filled one sample after the other."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

Labels: TypeAlias = Mapping[str, str]
_Family: TypeAlias = GaugeMetricFamily | CounterMetricFamily | SummaryMetricFamily


class Families:
    """Families by name, in the order in which they first came."""

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
