"""The newest moment, as prometheus-client wants it."""

import threading
from collections.abc import Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from vramtui.records.export.metrics import MetricFamily


class SampleCollector:
    """What a registry collects from: the families that were put in last, and no older ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: Sequence[MetricFamily] = ()

    def put(self, families: Sequence[MetricFamily]) -> None:
        """Let these be what is scraped from now on."""
        with self._lock:
            self._families = families

    def collect(self) -> Iterable[Metric]:
        """What is scraped."""
        with self._lock:
            families = self._families
        for family in families:
            gauge = GaugeMetricFamily(family.name, family.text, labels=family.labels)
            for labels, value in family.samples:
                gauge.add_metric(labels, value)
            yield gauge

    def describe(self) -> Iterable[Metric]:
        """Nothing before there is something."""
        return ()
