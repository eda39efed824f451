"""Two masks at once: three ways to fill them, on a model whose answers are known and on one with random weights."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.store import Records
from lightning_modules.analysis import joint_filling
from lightning_modules.analysis.joint_filling import fill_jointly
from lightning_modules.batch import Encoded
from lightning_modules.config import ConfigError
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.systems import SYSTEMS
from tests.language_models import SENTENCES
from tests.messages import naming

CITIES = {("new", "york"): 0.5, ("los", "angeles"): 0.3, ("new", "delhi"): 0.2}
TEXT = "[MASK] [MASK] is a city"


class Known(nn.Module):
    """A masked model that knows the joint distribution of two places and nothing else."""

    def __init__(self, joint, pieces):
        super().__init__()
        self.heads, self.objectives = nn.ModuleDict({"mlm": nn.ModuleDict()}), SimpleNamespace(mlm=self)
        self.table = torch.full((len(pieces), len(pieces)), 1e-12, dtype=torch.float64)
        for (a, b), chance in joint.items():
            self.table[pieces.index(a), pieces.index(b)] = chance

    def forward(self, example):
        states = example.inputs.ids[:, :, None].double()
        return Encoded(layers=[states], last=states, table=self.table)

    def logits(self, heads, encoded, example):
        ids, found = example.inputs.ids, []
        for place in example.targets["mlm"].where.tolist():
            row, at = divmod(place, ids.shape[1])
            other = int(ids[row, 3 - at])  # places are 1 and 2
            table = self.table if at == 1 else self.table.T
            found.append(table.sum(1) if other == 4 else table[:, other])
        return torch.stack(found).log()


@pytest.fixture
def encoder(tmp_path):
    path = tmp_path / "pieces.json"
    sentences = ["new york los angeles new delhi is a city"] * 9 + SENTENCES
    path.write_text(train(Tokenizer(kind="wordpiece", vocab_size=120), sentences).to_str())
    return Encoder(path, "wordpiece")


def test_what_belongs_together_is_found_one_word_after_the_other(encoder):
    found = fill_jointly(Known(CITIES, encoder.vocabulary.pieces), encoder, TEXT, 4)
    told = {pair[:2]: pair[2:] for pair in found}
    for pair, chance in CITIES.items():
        first = sum(p for (a, _), p in CITIES.items() if a == pair[0])
        second = sum(p for (_, b), p in CITIES.items() if b == pair[1])
        assert told[pair] == pytest.approx((first * second, chance, chance))
    assert told["new", "angeles"] == pytest.approx((0.7 * 0.3, 0, 0), abs=1e-8), (
        "as if either word knew nothing of the other"
    )
    assert [pair[:2] for pair in found[:3]] == list(CITIES)


@pytest.fixture
def random_model(encoder):
    size = {"model.num_layers": 2, "model.hidden_size": 32, "model.num_heads": 4, "model.init_std": 0.4}
    system = SYSTEMS["roberta_base"].but(
        **{
            **size, "model.max_positions": 16, "format.sequence_length": 16, "data.tokenizer.kind": "wordpiece",
            "data.tokenizer.vocab_size": 120,
        }
    )  # fmt: skip
    return system.build(0).eval()


@pytest.mark.parametrize("batch", [3, 64])
def test_all_pairs_are_compared(random_model, encoder, monkeypatch, batch):
    """The search that ends early finds what a table of all pairs holds."""
    monkeypatch.setattr(joint_filling, "_BATCH", batch)
    text, size = "the [MASK] is near [MASK] water", encoder.vocabulary.size
    asked = joint_filling._TwoMasks(random_model, encoder, text)
    words = list(range(size))
    first, second = (asked.predicted(side, [None])[0] for side in (0, 1))
    tables = {
        "independent": np.outer(first, second),
        "left_first": first[:, None] * asked.predicted(1, words),
        "right_first": second[None] * asked.predicted(0, words).T,
    }
    assert not np.allclose(tables["left_first"], tables["right_first"], rtol=0.1)
    found = fill_jointly(random_model, encoder, text, 3)
    pieces = encoder.vocabulary.pieces
    told = {pair[:2]: pair for pair in found}
    for way, table in tables.items():
        assert table.sum() == pytest.approx(1)
        best = np.dstack(np.unravel_index(np.argsort(-table, axis=None)[:3], table.shape))[0]
        for a, b in best:
            assert getattr(told[pieces[a], pieces[b]], way) == pytest.approx(table[a, b], rel=1e-5)
    for pair in found:
        a, b = pieces.index(pair.first), pieces.index(pair.second)
        assert pair[2:] == pytest.approx([table[a, b] for table in tables.values()], rel=1e-5)


@pytest.mark.parametrize("text", ["no mask", "one [MASK]", "[MASK] [MASK] [MASK]"])
def test_a_text_has_two_masks(random_model, encoder, text):
    with pytest.raises(ConfigError, match=naming(str(text.count("[MASK]")), "twice")):
        fill_jointly(random_model, encoder, text)


def test_a_text_that_is_too_long_is_refused(random_model, encoder):
    with pytest.raises(ConfigError, match=r"too long.*16"):
        fill_jointly(random_model, encoder, "[MASK] " + "water " * 20 + "[MASK]")


def test_a_model_without_masks_is_refused(encoder):
    with pytest.raises(ConfigError, match="'mlm'"):
        fill_jointly(SimpleNamespace(objectives=SimpleNamespace(mlm=None)), encoder, TEXT)


def test_the_command_shows_the_three_ways(encoder, tmp_path, monkeypatch):
    known = Known(CITIES, encoder.vocabulary.pieces)
    system = SYSTEMS["roberta_base"]
    opened = SimpleNamespace(name="it", system=system, encoder=encoder, tuned=None, pretrained=lambda _: known)
    monkeypatch.setattr("ablations.inspection.models.opened", lambda *_, **__: opened)
    words = ["ask", "abc", TEXT, "--set", "joint=true", "--set", "top=4", "--results-dir", str(tmp_path)]
    assert Records(tmp_path).files() == []
    (tmp_path / "records").mkdir()
    ended = CliRunner().invoke(app, [*words, "--format", "json"], catch_exceptions=False)
    assert json.loads(ended.output)[0] == {
        "first": "new", "second": "york", "independent": pytest.approx(0.35), "left first": pytest.approx(0.5),
        "right first": pytest.approx(0.5),
    }  # fmt: skip
