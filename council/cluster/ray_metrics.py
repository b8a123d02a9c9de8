"""Exports the council's metrics with Ray's own, as ``ray_council_…`` at each node's metrics port."""

from __future__ import annotations

from typing import Any

from ray.util import metrics as ray_metrics

from council.kinds.row import Metric
from council.telemetry.metrics import METRICS, SETTERS


class RaySink:
    """Passes figures to Ray, which exports them while this process lives."""

    def __init__(self) -> None:
        kinds: Any = {"counter": ray_metrics.Counter, "gauge": ray_metrics.Gauge}
        self._made: dict[str, Any] = {}
        for name, metric in METRICS.items():
            tags = ("council", *metric.labels)
            if metric.kind == "histogram":
                self._made[name] = ray_metrics.Histogram(name, metric.help, list(metric.buckets), tags)
            else:
                self._made[name] = kinds[metric.kind](name, metric.help, tags)

    def record(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        if metric.kind == "counter" and value <= 0:
            return  # Ray refuses it; a missing counter reads as 0
        getattr(self._made[metric.name], SETTERS[metric.kind])(float(value), labels)
