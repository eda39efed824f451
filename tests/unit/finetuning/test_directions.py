"""Fine-tuning of models that read one way: whose state stands for a text, and a BiLSTM on top."""

import numpy as np
import pytest
import torch

from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import finetune
from lightning_modules.generation.language_model import check_predicts_next
from lightning_modules.model.recurrent import BiLSTMOnTop
from tests.tuning import tunings

SETTINGS, tuning = tunings(epochs=6)
MIXING = ("mean", "max", "concat", "mean_per_text")


def reading(tiny, direction):
    return tiny.but(**{"model.direction": direction, "model.num_layers": 2})


@pytest.mark.parametrize("how", [{}, {"bilstm_layers": 1}, *({"reader": way} for way in MIXING)], ids=str)
@pytest.mark.parametrize("direction", ["both", "left_to_right", "right_to_left", "two_way"])
@pytest.mark.parametrize("task", ["toy", "toy_pairs"])
def test_every_token_of_a_text_is_heard_and_no_padding(tiny, direction, task, how):
    """The answer follows from each token, whichever way the model reads, and from nothing else in the batch."""
    run = tuning(reading(tiny, direction), task=task, **how)
    module, inputs = run.build().eval(), run.data.train
    order = np.argsort(inputs.sizes[:, 0])
    number, longest = int(order[len(order) // 2]), int(order[-1])
    example = inputs.batch(np.array([number]))
    together = module(inputs.batch(np.array([longest, number])))[1]
    answer = module(example)
    assert torch.allclose(together, answer[0], atol=1e-6)
    for place in range(1, example.inputs.ids.shape[1]):
        changed = inputs.batch(np.array([number]))
        changed.inputs.ids[0, place] = (changed.inputs.ids[0, place] - 5 + 7) % 59 + 5
        assert not torch.equal(module(changed), answer), place


def test_the_bilstm_is_new_and_learns_with_everything_below(tiny, tmp_path):
    settings = SETTINGS.but(bilstm_layers=2)
    run = tuning(reading(tiny, "left_to_right"), settings=settings)
    module = run.build()
    assert isinstance(module.backbone, BiLSTMOnTop)
    assert module.backbone.width == 16
    example = next(iter(run.data.train_dataloader()))
    assert module.backbone(example).last.shape[-1] == 16
    module.train()(example).square().sum().backward()
    still = {name for name, p in module.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    assert not still
    fitted = finetune(run, tmp_path)
    assert fitted.metrics["toy.accuracy"] > 0.6


def test_the_encoder_below_is_the_pretrained_one(tiny, tmp_path):
    from tests.unit.finetuning.test_finetune import weights

    system = reading(tiny, "left_to_right")
    path, pretrained = weights(system, tmp_path)
    module = tuning(system, path, bilstm_layers=1).build()
    for name, tensor in pretrained.backbone.state_dict().items():
        assert torch.equal(module.backbone.encoder.state_dict()[name], tensor), name


def test_work_of_the_bilstm_is_counted(tiny):
    plain, more = (SETTINGS.but(bilstm_layers=n).flops_per_sequence(tiny, 16, 1.0) for n in (0, 1))
    assert more - plain == 3 * 16 * 2 * (2 * 4 * 8 * (16 + 8))  # gates of two directions, each 8 wide, reading 16


# --- a classifier that reads reversed text, as the second one of ULMFiT

STREAM = {
    "objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right",
    "format.kind": "stream", "format.break_mode": "none", "format.frame": "document_ends",
}  # fmt: skip
BACKWARD = STREAM | {"format.sentence_order": "backward"}


@pytest.mark.parametrize("most", [16, 8], ids=["longer", "cut"])
def test_both_directions_read_the_same_pieces_of_a_text(tiny, most):
    there, back = (tuning(tiny.but(**knobs), max_length=most).data for knobs in (STREAM, BACKWARD))
    assert np.array_equal(there.dev.sizes, back.dev.sizes)
    assert (there.dev.sizes == 8).sum() > 1 or most > 8, "some texts are cut"
    for number in range(len(there.dev)):
        one, other = (data.dev.batch(np.array([number])).inputs.ids[0].tolist() for data in (there, back))
        assert [other[0], *other[-2:0:-1], other[-1]] == one, "the first and the last symbol stay"
    one, other = ([batch.targets["label"].ids.tolist() for batch in data.train_dataloader()] for data in (there, back))
    assert one == other, "the same examples in the same order"


def test_pairs_of_texts_are_refused(tiny):
    with pytest.raises(ConfigError, match="toy_pairs is not answered by a single text"):
        tuning(tiny.but(**BACKWARD), task="toy_pairs").build()


def test_a_model_of_reversed_text_is_asked_and_writes_nothing(tiny):
    check_predicts_next(tiny.but(**STREAM), "the model")
    with pytest.raises(ConfigError, match="reversed text"):
        check_predicts_next(tiny.but(**BACKWARD), "the model")


def test_only_streams_are_reversed(tiny):
    assert tiny.but(**BACKWARD).essence() != tiny.but(**STREAM).essence()
    running = {"format.kind": "full_sentences", "format.sentence_order": "backward"}
    assert not tiny.but(**running).reads_backward
