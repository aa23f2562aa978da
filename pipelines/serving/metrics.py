"""What the server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.generation.schedule import Load

__all__ = ["CONTENT_TYPE_LATEST", "Metrics", "ModelMetrics"]

FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
EACH_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)

LOAD: dict[str, tuple[str, Callable[[Load], int]]] = {
    "heddle_requests_running": ("Texts that steps work on", lambda load: load.running),
    "heddle_requests_waiting": ("Texts that wait", lambda load: load.waiting),
    "heddle_cache_blocks_used": ("Blocks of the cache in use", lambda load: load.blocks_used),
    "heddle_cache_blocks": ("Blocks of the cache", lambda load: load.blocks),
}
"""What a generator's load says, by the metric's name."""


class DraftMetrics(Collector):
    """How the drafts of each model have fared, which their generators count.

    Attributes:
        generators: By the names of their models.
    """

    def __init__(self) -> None:
        self.generators: dict[str, TextGenerator] = {}

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Both counters, of all models."""
        checked = CounterMetricFamily("heddle_draft_tokens", "Draft tokens", labels=["model"])
        right = CounterMetricFamily(
            "heddle_accepted_draft_tokens", "Draft tokens that were right", labels=["model"]
        )
        for model, generator in self.generators.items():
            drafts = generator.drafts
            checked.add_metric([model], drafts.checked)
            right.add_metric([model], drafts.right)
        yield from (checked, right)


class Metrics:
    """The counters of one server, each with a label for the model."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        model = ["model"]
        self.requests = Counter(
            "heddle_requests",
            "Texts asked for that have ended, and why; an embedding is one that ends by stop",
            ["model", "finish_reason"],
            registry=self.registry,
        )
        self.prompt_tokens = Counter(
            "heddle_prompt_tokens", "Tokens of prompts", model, registry=self.registry
        )
        self.generated_tokens = Counter(
            "heddle_generated_tokens", "Tokens generated", model, registry=self.registry
        )
        self.first_token = Histogram(
            "heddle_time_to_first_token_seconds",
            "From the request to its first token",
            model,
            registry=self.registry,
            buckets=FIRST_S,
        )
        self.each_token = Histogram(
            "heddle_time_per_output_token_seconds",
            "From one token to the next",
            model,
            registry=self.registry,
            buckets=EACH_S,
        )
        self.loads = {
            name: Gauge(name, text, model, registry=self.registry)
            for name, (text, _) in LOAD.items()
        }

        self.drafts = DraftMetrics()
        self.registry.register(self.drafts)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self.registry)


class ModelMetrics:
    """The counters of one model.

    Args:
        metrics: The server's.
        model: The model's name.
        generator: Tells how much there is to do; None: the model is none.
    """

    def __init__(
        self, metrics: Metrics, model: str, generator: TextGenerator | None = None
    ) -> None:
        self._requests = metrics.requests
        self._model = model
        self.prompt_tokens = metrics.prompt_tokens.labels(model)
        self.generated_tokens = metrics.generated_tokens.labels(model)
        self.first_token = metrics.first_token.labels(model)
        self.each_token = metrics.each_token.labels(model)
        if generator:
            metrics.drafts.generators[model] = generator
            for name, (_, number) in LOAD.items():
                gauge = metrics.loads[name].labels(model)
                gauge.set_function(partial(_of, generator, number))

    def ended(self, reason: str, count: int = 1) -> None:
        """Counts texts that have ended, and why."""
        self._requests.labels(self._model, reason).inc(count)


def _of(generator: TextGenerator, number: Callable[[Load], int]) -> int:
    return number(generator.load)
