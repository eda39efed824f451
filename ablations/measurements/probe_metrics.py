"""Metrics of probes: what a record holds, and the gain over the run's own random weights, which is derived from it."""

from collections.abc import Mapping

from lightning_modules.probing.retrieval import RETRIEVALS
from lightning_modules.probing.table import PROBES

PREFIX = "probes."
CONTROLS = {  # ending of a control's metric -> what it is
    "random": "the same reader on the initial weights of the same run",
    "words": "ridge regression on the words of the texts, without their order",
    "majority": "the majority class, or the mean of real labels",
}
OF_LAYERS = {  # ending of a layer's metric -> what it is, of probes that score each layer
    "embeddings": "read from the output of the embeddings alone",
    "middle": "read from the layer half-way up alone",
    "last": "read from the last layer alone",
}
OF_RETRIEVAL = {  # ending of a simple method's metric -> what it is, of probes that ask for a translation
    "best_simple": "best simple method",
    "words": "words and digits in common",
    "letters": "n-grams of letters",
    "length": "lengths",
    "majority": "chance",
}
GAIN, MEAN_GAIN = "_gain", f"{PREFIX}mean_gain"


def probe_of(metric: str) -> str:
    """The probe that a metric belongs to; empty for ``probes.mean_gain`` and for metrics of other kinds.

    >>> probe_of("probes.word_order_gain")
    'word_order'
    """
    name = metric.removeprefix(PREFIX)
    if name == metric:
        return ""
    return next((probe for probe in PROBES if name == probe or name.removeprefix(f"{probe}_") in _ENDINGS), "")


def gains(metrics: Mapping[str, float]) -> dict[str, float]:
    """The gain of each probe in a record's metrics, and their mean if there is one; all scores count alike."""
    found = {
        f"{PREFIX}{probe}{GAIN}": metrics[name] - metrics[f"{name}_random"]
        for probe in PROBES
        if (name := f"{PREFIX}{probe}") in metrics and f"{name}_random" in metrics
    }
    return found | ({MEAN_GAIN: sum(found.values()) / len(found)} if found else {})


def controls_of(probe: str) -> dict[str, str]:
    """Ending of the metric of each control of a probe -> what it is."""
    return CONTROLS | OF_RETRIEVAL if PROBES[probe] in RETRIEVALS else CONTROLS


def known() -> dict[str, str]:
    """Every metric of probes with its description."""
    described = {MEAN_GAIN: "mean gain of the probes of a run"}
    for name, probe in PROBES.items():
        described |= {f"{PREFIX}{name}": f"{probe.metric} of the probe {probe.title}"}
        controls = controls_of(name)
        described |= {f"{PREFIX}{name}_{control}": text for control, text in controls.items()}
        if probe.by_layer:
            described |= {f"{PREFIX}{name}_{layer}": text for layer, text in OF_LAYERS.items()}
        described[f"{PREFIX}{name}{GAIN}"] = "the score minus that on the initial weights"
    return described


_ENDINGS = {GAIN[1:], *CONTROLS, *OF_LAYERS, *OF_RETRIEVAL}
