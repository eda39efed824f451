"""Rows of other symbols than [CLS] and [SEP], and rows of two texts in both orders."""

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.model.embeddings import FIRST_NEW
from lightning_modules.systems import BERT_BASE
from lightning_modules.tasks import FineTuning, fitting
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.shapes.choice import Choice, Question
from lightning_modules.tasks.shapes.texts import LABEL, Row, Texts

NEW = ["[start]", "[delimiter]", "[extract]"]
ALIKE = Texts(("no", "yes"), pair=True, symmetric=True)
LETTERS = "abcdefghij"


def inputs_of(shape, rows, encoder, **settings):
    examples = shape.read(rows, "made")
    pieces = Pieces.of(examples.texts(), encoder)
    return shape.inputs(examples, pieces, encoder.vocabulary, FineTuning().but(**{"max_length": 16, **settings}))


def shown(inputs, encoder, *numbers):
    """The pieces of some items, row by row, without padding."""
    tokens = inputs.batch(np.array(numbers)).inputs
    names = dict(enumerate(encoder.vocabulary.pieces)) | dict(enumerate(NEW, FIRST_NEW))
    rows = zip(tokens.ids.tolist(), tokens.real.tolist(), strict=True)
    return [" ".join(names[i] for i, real in zip(*row, strict=True) if real) for row in rows]


def test_rows_are_those_of_figure_1(encoder):
    alone = inputs_of(Texts(("0", "1")), [Row("a b", None, "1"), Row("c", None, "0")], encoder, layout="extract")
    assert shown(alone, encoder, 0, 1) == ["[start] a b [extract]", "[start] c [extract]"]
    pairs = inputs_of(ALIKE, [Row("a b", "c", "yes")], encoder, layout="extract")
    assert shown(pairs, encoder, 0) == ["[start] a b [delimiter] c [extract]"]
    options = inputs_of(Choice(2), [Question("a", "b", ("c", "d e"), 1)], encoder, layout="extract")
    assert shown(options, encoder, 0) == [
        "[start] a [delimiter] b c [extract]", "[start] a [delimiter] b d e [extract]"
    ]  # fmt: skip


def random_rows(count, seed=0):
    noise = np.random.default_rng(seed)
    texts = [" ".join(noise.choice(list(LETTERS), size=noise.integers(1, 14))) for _ in range(2 * count)]
    return [Row(*texts[2 * n : 2 * n + 2], ("no", "yes")[n % 2]) for n in range(count)]


@pytest.mark.parametrize("length", [8, 11, 16, 40])
@pytest.mark.parametrize("shape", [ALIKE, Texts(("no", "yes"))], ids=["pair", "single"])
def test_texts_are_cut_as_between_cls_and_sep(encoder, shape, length):
    """But for the symbols, every row is the same in both layouts: pieces, padding, segments, special positions."""
    rows = random_rows(40)
    ours, berts = (
        inputs_of(shape, rows, encoder, layout=layout, max_length=length) for layout in ("extract", "cls_sep")
    )
    assert np.array_equal(ours.sizes, berts.sizes)
    here, there = (inputs.batch(np.arange(40)).inputs for inputs in (ours, berts))
    ids = here.ids.clone()
    cls, sep = encoder.vocabulary.cls, encoder.vocabulary.sep
    for number, usual in enumerate((cls, sep, sep)):
        ids[ids == FIRST_NEW + number] = usual
    assert ids.equal(there.ids)
    assert here.special.equal(there.special)
    assert here.real.equal(there.real)
    assert here.tables["segment"].equal(there.tables["segment"])
    ends = here.real.sum(1) - 1
    assert (here.ids.gather(1, ends[:, None]) == FIRST_NEW + 2).all(), "the last position of a row is [extract]"


class TestBothOrders:
    def test_a_row_for_each_order_and_one_label(self, encoder):
        rows = [Row("a b c", "d", "yes"), Row("e", "f g", "no")]
        inputs = inputs_of(ALIKE, rows, encoder, layout="extract", both_orders=True)
        assert shown(inputs, encoder, 1, 0) == [
            "[start] e [delimiter] f g [extract]", "[start] f g [delimiter] e [extract]",
            "[start] a b c [delimiter] d [extract]", "[start] d [delimiter] a b c [extract]",
        ]  # fmt: skip
        example = inputs.batch(np.array([1, 0]))
        assert example.targets[LABEL].ids.tolist() == [0, 1]
        assert example.targets[LABEL].where.tolist() == [0, 2 * 7]
        assert example.inputs.sample.tolist() == [2, 3, 0, 1]
        assert inputs.sizes.tolist() == [[7, 7], [6, 6]]
        assert len(inputs) == 2


class TestWhatDoesNotFit:
    def test_so_is_a_first_task(self):
        with pytest.raises(ConfigError, match="squad1 is answered from single positions"):
            fitting.check(BERT_BASE, "rte", FineTuning(layout="extract", first="squad1"))
