"""The counts of a router for `prometheus_client`: beside the metrics of the process it runs in.

    from prometheus_client import REGISTRY
    REGISTRY.register(RouterCollector(router))

`/-/metrics` needs none of that: it writes the same families by itself (http_metrics.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from evenbins.cluster.http_metrics import FIRST_BYTE, FIRST_BYTE_HELP, PREFIX
from evenbins.cluster.libraries import library

if TYPE_CHECKING:
    from evenbins.cluster.http import Router

__all__ = ["RouterCollector"]


class RouterCollector:
    """A collector for a `prometheus_client` registry: `registry.register(RouterCollector(router))`.

    Raises
    ------
    ImportError
        prometheus_client is not installed.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._core = library("prometheus_client.core", "prometheus")

    def describe(self) -> list[Any]:
        """Return nothing: names need not be known before the first scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the families of `Metrics.families`, and the histogram of first bytes."""
        core, metrics = self._core, self._router.metrics
        for name, kind, about, values in metrics.families(self._router.status()):
            make = core.CounterMetricFamily if kind == "counter" else core.GaugeMetricFamily
            labels = [label for label, _ in values[0][0]] if values else ["upstream"]
            family = make(PREFIX + name, about, labels=labels)
            for pairs, value in values:
                family.add_metric([text for _, text in pairs], value)
            yield family
        family = core.HistogramMetricFamily(PREFIX + FIRST_BYTE, FIRST_BYTE_HELP, labels=["upstream"])
        for upstream, (buckets, seconds) in metrics.first_byte_buckets().items():
            family.add_metric([upstream], buckets, seconds)
        yield family
