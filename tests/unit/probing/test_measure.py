"""What probes find: planted signals, nothing where nothing is, controls, and the same numbers after a kill."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from ablations.schema.run import Run
from lightning_modules import pretraining
from lightning_modules.batch import Encoded
from lightning_modules.config import ConfigError
from lightning_modules.data import fingerprints
from lightning_modules.data.store import tokenizer_file
from lightning_modules.data.text.encode import Encoder, as_example
from lightning_modules.probing import measure, states, table
from lightning_modules.probing.measure import probe
from lightning_modules.probing.parts import Parts
from lightning_modules.probing.states import Places, Rows, combined, pooled
from lightning_modules.systems import ROBERTA_BASE
from lightning_modules.tasks.shapes.texts import Row, Texts
from lightning_modules.training.callbacks import Interrupted
from tests.messages import naming

CPU = torch.device("cpu")
CHANCE = 3 * 0.5 / 300**0.5  # three standard errors of 300 test examples


@dataclass(frozen=True)
class Toy:
    """A probe on words of the corpus ``text_file``."""

    kind: str
    name: str = "word_order"
    metric: str = "accuracy"
    title: str = "Toy: which?"
    by_layer: bool = False

    @property
    def shape(self):
        return Texts(labels=() if self.metric == "spearman" else ("low", "high"), pair=self.kind == "pair")

    def fingerprint(self):
        return self.kind

    def examples(self, data):
        made = []
        for number, count in enumerate((200, 300)):
            noise, rows = np.random.default_rng([number, 7]), []
            for n in range(count):
                low, high = f"w{noise.integers(0, 29):02d}", f"w{noise.integers(30, 59):02d}"
                label = n % 2
                between = [f"w{word:02d}" for word in noise.integers(0, 59, 3)]
                if self.kind == "order":
                    text = " ".join([high, *between, low] if label else [low, *between, high])
                    rows.append(Row(text, None, str(label)))
                elif self.kind == "words":
                    rows.append(Row(" ".join([high, high] if label else [low, low]), None, str(label)))
                elif self.kind == "pair":
                    rows.append(Row(low, low if label else f"w{noise.integers(0, 29):02d}", str(label)))
                else:
                    rows.append(Row(" ".join(between), None, str(noise.random())))
            made.append(self.shape.read(rows, self.name))
        return Parts(*made)


class Order(nn.Module):
    """States that know whether the first word is a high one; in one of three layers, words in the others."""

    def __init__(self, system, layer: int = 2) -> None:
        super().__init__()
        vocabulary = Encoder(tokenizer_file(system.data), system.data.tokenizer.kind).vocabulary
        self.high = torch.tensor([len(piece) == 3 and piece >= "w30" for piece in vocabulary.pieces])
        self.layer = layer

    def forward(self, example):
        ids = example.inputs.ids
        signal = self.high[ids[:, 1]].float()[:, None, None].expand(*ids.shape, 4)
        noise = torch.sin(ids[..., None] * torch.tensor([1.0, 2.0, 3.0, 5.0]))
        layers = [signal if self.layer == number else noise for number in range(3)]
        return Encoded(layers=layers, last=layers[-1], table=torch.zeros(1, 4))


@pytest.fixture
def probed(tiny, monkeypatch):
    """A function: the system, and what its probe measures of a backbone, for a kind of toy probe."""
    whole_words = {"data.tokenizer.vocab_size": 92, "model.hidden_size": 64}
    system = tiny.but(**{"evaluation.probes": ["word_order"], **whole_words})

    def measured(kind, backbone=None, system=system, **changes):
        monkeypatch.setitem(table.PROBES, "word_order", Toy(kind, **changes))
        return probe(system, 0, backbone or system.build(0).backbone, CPU)

    return system, measured


def test_a_planted_signal_is_found_and_the_controls_do_not_see_it(probed):
    found = probed[1]("order", Order(probed[0])).metrics
    assert found["probes.word_order"] == 1.0
    assert abs(found["probes.word_order_words"] - 0.5) < CHANCE
    assert found["probes.word_order_majority"] == 0.5
    assert found["probes.word_order_random"] < 0.9


@pytest.mark.parametrize(("layer", "name"), [(0, "embeddings"), (1, "middle"), (2, "last")])
def test_each_layer_has_a_score_where_a_probe_asks_for_it(probed, layer, name):
    found = probed[1]("order", Order(probed[0], layer), by_layer=True).metrics
    scores = {of: found[f"probes.word_order_{of}"] for of in ("embeddings", "middle", "last")}
    assert scores.pop(name) == found["probes.word_order"] == 1.0
    assert all(score < 0.9 for score in scores.values())


def test_words_are_found_by_random_weights_and_by_word_counts(probed):
    found = probed[1]("words").metrics
    assert found["probes.word_order_random"] > 0.7
    assert found["probes.word_order_words"] > 0.95
    assert found["probes.word_order"] == found["probes.word_order_random"]  # it has these weights


def test_pairs_are_compared(probed):
    found = probed[1]("pair").metrics
    assert found["probes.word_order"] > 0.9
    assert abs(found["probes.word_order_majority"] - 0.5) < 1e-9


def test_real_labels_are_correlated_and_random_ones_are_not(probed):
    found = probed[1]("numbers", metric="spearman")
    assert abs(found.metrics["probes.word_order"]) < 3 / 300**0.5
    assert found.metrics["probes.word_order_majority"] == 0
    assert not found.examples


def test_controls_are_measured_once(probed, monkeypatch):
    system, measured = probed
    before, networks = measured("words").metrics, [Order(system)]
    monkeypatch.setattr(measure.words, "outputs", None)
    monkeypatch.setattr(type(system), "build", None)
    assert measured("words", networks[0]).metrics | {"probes.word_order": 0} == before | {"probes.word_order": 0}


def test_states_are_means_over_the_positions_of_a_text_alone(tiny, monkeypatch):
    encoder = Encoder(tokenizer_file(tiny.data), tiny.data.tokenizer.kind)
    texts = ["w01 w02", "w03", "w01 w02 w03 w04 w05 w06", "w05 w06"]
    examples = Texts(labels=("a", "b")).read([Row(text, None, "0") for text in texts], "toy")
    rows, backbone = Rows.of(Parts(examples, examples), encoder, 6), tiny.build(0).backbone.eval()
    found = pooled(backbone, rows, CPU)
    for number, text in enumerate(texts):
        with torch.no_grad():
            encoded = backbone(as_example(encoder([text])[0][:4].tolist(), encoder.vocabulary))
        assert found[2][number] == pytest.approx(encoded.last[0].mean(0).numpy(), rel=1e-4, abs=1e-6)
    monkeypatch.setattr(states, "_POSITIONS_AT_ONCE", 1)
    for layer, again in zip(found, pooled(backbone, rows, CPU), strict=True):
        assert again == pytest.approx(layer, rel=1e-4, abs=1e-6)


def test_of_two_texts_both_vectors_their_difference_and_product_are_read():
    vectors, places = np.array([[1.0, 2.0], [3.0, -1.0]]), Places(np.array([0, 1]), np.array([1, 1]))
    assert combined(vectors, places).tolist() == [[1, 2, 3, -1, 2, 3, 3, -2], [3, -1, 3, -1, 0, 0, 9, 1]]


def test_one_word_of_a_text_is_read_where_a_probe_names_it(tiny):
    encoder = Encoder(tokenizer_file(tiny.data), tiny.data.tokenizer.kind)
    examples = Texts(labels=("a", "b")).read([Row("w11 w02 w37 w04", None, "0")] * 2, "toy")
    rows = Rows.of(Parts(examples, examples, np.array([2, 0]), np.array([3, 2])), encoder, 16)
    backbone = tiny.build(0).backbone
    assert rows.train.first.tolist() == [0, 1]
    assert rows.test.first.tolist() == [2, 0]
    counts = [len(encoder([word])[0]) for word in ("w11", "w02", "w37", "w04")]
    ends = 1 + np.cumsum([0, *counts])
    with torch.no_grad():
        last = backbone.eval()(as_example(encoder(["w11 w02 w37 w04"])[0].tolist(), encoder.vocabulary)).last[0]
    found = pooled(backbone, rows, CPU)[2]
    for row, word in enumerate((2, 0, 3)):
        expected = last[ends[word] : ends[word + 1]].mean(0).numpy()
        assert found[row] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_the_probes_of_the_settings_are_those_of_the_table():
    names = tuple(table.PROBES)
    assert ROBERTA_BASE.but(**{"evaluation.probes": list(names)}).evaluation.probes == tuple(sorted(names))
    with pytest.raises(ConfigError, match=naming("evaluation.probes")):
        ROBERTA_BASE.but(**{"evaluation.probes": ["word_ordre"]})
    with pytest.raises(ConfigError, match=naming("twice")):
        ROBERTA_BASE.but(**{"evaluation.probes": ["sst2", "sst2"]})


def test_without_probes_a_run_is_the_same_and_with_probes_the_data_count(tiny, monkeypatch):
    prints = fingerprints(tiny.data)
    plain, none = (Run.pretraining(tiny.but(**change), 0, prints) for change in ({}, {"evaluation.probes": []}))
    assert plain.id == none.id
    assert "probes" not in plain.essence()["system"]["evaluation"]
    ids = [plain.id]
    for kind in ("order", "words"):
        monkeypatch.setitem(table.PROBES, "word_order", Toy(kind))
        run = Run.pretraining(tiny.but(**{"evaluation.probes": ["word_order"]}), 0, prints)
        assert set(run.fingerprints) == {*prints, "probes.word_order"}
        ids.append(run.id)
    assert len(set(ids)) == 3


def test_a_kill_between_probes_costs_no_training_and_changes_nothing(probed, tmp_path, monkeypatch):
    system = probed[0].but(**{"evaluation.probes": ["word_order", "far_order"]})
    monkeypatch.setitem(table.PROBES, "word_order", Toy("words"))
    monkeypatch.setitem(table.PROBES, "far_order", Toy("order", "far_order"))
    whole = pretraining.fit(system, 1, tmp_path / "whole")
    assert {"probes.far_order", "probes.word_order_random"} <= whole.metrics.keys()
    assert whole.cost["probes_seconds"] > 0

    asked = []

    def stop():
        asked.append(1)
        return len(asked) > system.training.steps + 1  # the second probe

    with pytest.raises(Interrupted):
        pretraining.fit(system, 1, tmp_path / "killed", stop=stop)
    steps = []
    resumed = pretraining.fit(system, 1, tmp_path / "killed", on_progress=lambda progress: steps.append(progress.step))
    assert not steps, "no step is made again"
    assert resumed.metrics == whole.metrics
    assert resumed.curve == whole.curve
    assert resumed.examples == whole.examples
