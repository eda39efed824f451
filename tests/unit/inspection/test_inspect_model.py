"""Inspecting one model: what is shown, of which model, and what is refused."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.text import Text

from ablations.core.store import Records
from ablations.figures.style import svg
from ablations.inspection import attention_figure, embedding_figure
from ablations.inspection.embedding_figure import Probed
from ablations.inspection.inspect_model import Inspection
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.config import ConfigError
from lightning_modules.training.weights import WEIGHTS
from tests import tiny as simple

HOSTILE = "$x_1$ <b> \u202e |"


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text() and text.get_visible()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A grid with one finished run, made once; its cache is a folder beside it."""
    folder = tmp_path_factory.mktemp("inside")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
        records = Records(folder / "results")
        found = plan(grids.read(simple.grid(folder, rates="[0.15]", seeds=1, steps=8)), "smoke", records=records)
        execute(found, records, "inline")
        yield found, records, folder


@pytest.fixture
def model(trained, monkeypatch):
    found, records, folder = trained
    monkeypatch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
    return Inspection(found, records)


@pytest.mark.slow
def test_everything_it_shows_of_a_model_is_shown(model):
    sentence = "The old cat sees a bird."
    known = model.vectors.words
    groups = {"some": " ".join(known[:3]), "others": f"{known[3]} zebra"}
    sentences = {"first": ["The cat runs.", "A cat sees."], "last": ["The dog likes a cat.", "Under a cat."]}
    for shown in (model.attention(sentence), model.head([1, 2], sentence), model.head("[1, 1]", sentence),
                  model.head(None, sentence), model.heads(), model.words(groups),
                  model.senses("cat", sentences)):  # fmt: skip
        assert ElementTree.fromstring(shown.data).tag.endswith("svg")
    assert model.run.id in model.about().data
    assert "The [MASK] runs" in model.fill(["The [MASK] runs."], 3).data.replace("\\", "")
    assert model.heads_table().data.count("\n| 1.") == 2, "one row a head"
    assert f"| {known[0]} |" in model.neighbours([known[0], "zebra"]).data
    assert "zebra" not in model.neighbours([known[0], "zebra"]).data
    assert "none of these" in model.neighbours(["zebra"]).data
    assert "No question-answering run of this model" in model.answer().data
    assert "too few" in model.words({"none": "xylophone zebra"}).data


def test_the_nearest_in_context_are_of_the_text_and_next_to_the_table(model):
    word = model.vectors.words[0]
    near = model.in_context(word, {"one": [f"The old {word} runs."], "two": [f"A dog likes {word}."]}, count=2).data
    assert near.count("| the embedding table |") == near.count("| one |") == near.count("| two |") == 2
    text = ["A cat runs.", "The dog sees a bird."]
    asked = model.in_context("cat", {"one": ["A cat runs fast."]}, text, layer=0, count=1).data
    assert "| cat | 1.00 | A cat runs. |" in asked, "layer 0 has no context but the place"
    with pytest.raises(ConfigError, match=r"layer 9 is not one of this model. Name 0 to 1"):
        model.in_context("cat", {"one": ["A cat."]}, layer=9)
    with pytest.raises(ConfigError, match="no sentences with 'bank'"):
        model.in_context("bank")


def test_weights_that_are_gone_are_trained_again(model, trained):
    path = model.records.work_folder(model.run.id) / WEIGHTS
    before = path.read_bytes()
    path.unlink()
    assert Inspection(*trained[:2]).fill(["A [MASK]."]).data
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", [[2, 1], [1, 3], [0, 1], [1], 7, "[1, x]", "one"])
def test_a_head_that_is_not_there(model, where):
    with pytest.raises(ConfigError, match=r"Name a layer from 1 to 1 and a head from 1 to 2, such as \[1, 1\]"):
        model.head(where)


def test_what_cannot_be_asked(model, trained, tmp_path):
    with pytest.raises(ConfigError, match=r"no sentences with 'bank'.*: may, left"):
        model.senses("bank")
    with pytest.raises(ConfigError, match="the sentence is too long"):
        model.attention("cat " * 40)
    several = plan(grids.read(simple.grid(tmp_path)), "smoke", records=trained[1])
    with pytest.raises(ConfigError, match=r"one model, but 2 match. Narrow `filters` to one of: .*0\.15"):
        Inspection(several, trained[1])
    unmade = plan(grids.read(simple.grid(tmp_path, rates="[0.15]", steps=9)), "smoke", records=trained[1])
    with pytest.raises(ConfigError, match="no runs start with"):
        Inspection(unmade, trained[1])


def random_attention(layers, heads, length=6):
    weights = np.random.default_rng(0).dirichlet(np.ones(length), (layers, heads, length))
    return weights, np.tril(np.ones(length)) * np.ones_like(weights)


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (2, 12), (24, 2)])
def test_all_heads_have_a_picture_each(layers, heads):
    weights, prior = random_attention(layers, heads)
    figure = attention_figure.all_heads(weights, prior, HOSTILE)
    pictures = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(pictures) == layers * heads
    assert all(np.array_equal(picture.mask, prior[0, 0] == 0) for picture in pictures)
    shown = {picture.data.tobytes() for picture in pictures}
    assert shown == {weights[layer, head].tobytes() for layer, head in np.ndindex(layers, heads)}
    assert svg(figure) == svg(attention_figure.all_heads(weights, prior, HOSTILE)), "the same bytes each time"


def test_senses_count_in_the_whole_space_and_beside_the_untrained():
    states = np.zeros((3, 4, 5))
    states[1:, :2, 0], states[1:, 2:, 0] = 1.0, -1.0
    untrained = states * 0
    untrained[1:, ::2, 0], untrained[1:, 1::2, 0] = 1.0, -1.0
    found = "\n".join(texts(embedding_figure.senses(states, untrained, list("aabb"), "bank")))
    assert "embeddings\nall vectors equal" in found
    assert "layer 2\n4 of 4 nearest agree\nuntrained: 0" in found


def test_probe_scores_are_drawn_with_their_levels():
    found = Probed({"linear": [0.5, 0.7]}, {"linear": [0.5, 0.5]}, {"majority class": 0.5}, 100)
    figure = embedding_figure.probed(found, "a task")
    assert "majority class" in texts(figure)
    (axes,) = [axes for axes in figure.axes if axes.lines]
    drawn = [list(line.get_ydata()) for line in axes.lines]
    assert [0.5, 0.7] in drawn
    assert [0.5, 0.5] in drawn
    (low, high) = axes.collections[0].get_segments()[1][:, 1]
    assert (high - low) / 2 == pytest.approx(1.96 * np.sqrt(0.7 * 0.3 / 100))
