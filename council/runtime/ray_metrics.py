"""The council's metrics with Ray's own: as ``ray_council_…`` at each node's metrics port, some seconds late.

Knows what Ray asks of a metric; what the metrics are says ``council.metrics``.
"""

from __future__ import annotations

from typing import Any

from ray.util import metrics as ray_metrics

from council.metrics import METRICS, Metric


class RaySink:
    """Hands figures to Ray, which exports them for as long as this process lives."""

    def __init__(self) -> None:
        kinds: Any = {"counter": ray_metrics.Counter, "gauge": ray_metrics.Gauge}
        self._made: dict[str, Any] = {}
        for metric in METRICS.values():
            tags = ("council", *metric.labels)
            if metric.kind == "histogram":
                self._made[metric.name] = ray_metrics.Histogram(
                    metric.name, metric.help, boundaries=list(metric.buckets), tag_keys=tags
                )
            else:
                self._made[metric.name] = kinds[metric.kind](metric.name, metric.help, tag_keys=tags)

    def add(self, metric: Metric, amount: float, labels: dict[str, str]) -> None:
        if amount > 0:  # Ray refuses others; a counter that is not there yet stands at 0
            self._made[metric.name].inc(amount, labels)

    def put(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        self._made[metric.name].set(float(value), labels)

    def observe(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        self._made[metric.name].observe(value, labels)
