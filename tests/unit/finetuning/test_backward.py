"""A classifier that reads reversed text, as the second one of ULMFiT."""

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import FinetuningRun
from lightning_modules.generation.language_model import check_predicts_next
from lightning_modules.tasks import FineTuning

STREAM = {
    "objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right",
    "format.kind": "stream", "format.break_mode": "none", "format.frame": "document_ends",
}  # fmt: skip
BACKWARD = STREAM | {"format.sentence_order": "backward"}


@pytest.mark.parametrize("most", [16, 8], ids=["longer", "cut"])
def test_both_directions_read_the_same_pieces_of_a_text(tiny, most):
    settings = FineTuning().but(**{"max_length": most, "batch_size": 4})
    there, back = (FinetuningRun(tiny.but(**knobs), "toy", settings, 0, None).data for knobs in (STREAM, BACKWARD))
    assert np.array_equal(there.dev.sizes, back.dev.sizes)
    assert (there.dev.sizes == 8).sum() > 1 or most > 8, "some texts are cut"
    for number in range(len(there.dev)):
        one, other = (data.dev.batch(np.array([number])).inputs.ids[0].tolist() for data in (there, back))
        assert [other[0], *other[-2:0:-1], other[-1]] == one, "the first and the last symbol stay"
    one, other = ([batch.targets["label"].ids.tolist() for batch in data.train_dataloader()] for data in (there, back))
    assert one == other, "the same examples in the same order"


def test_pairs_of_texts_are_refused(tiny):
    with pytest.raises(ConfigError, match="toy_pairs is not answered by a single text"):
        FinetuningRun(tiny.but(**BACKWARD), "toy_pairs", FineTuning().but(max_length=16), 0, None).build()


def test_a_model_of_reversed_text_is_asked_and_writes_nothing(tiny):
    check_predicts_next(tiny.but(**STREAM), "the model")
    with pytest.raises(ConfigError, match="reversed text"):
        check_predicts_next(tiny.but(**BACKWARD), "the model")


def test_only_streams_are_reversed(tiny):
    assert tiny.but(**BACKWARD).essence() != tiny.but(**STREAM).essence()
    running = {"format.kind": "full_sentences", "format.sentence_order": "backward"}
    assert not tiny.but(**running).reads_backward
