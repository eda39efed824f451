"""Int8 scores of a fine-tuned model: near those of fp32, by weights that are kept as they are."""

import pytest
import torch
from torch import nn

from lightning_modules.config import ConfigError
from lightning_modules.finetuning.quantization import Quantized
from lightning_modules.finetuning.run import finetune, finetuned
from lightning_modules.tasks import expected_work
from lightning_modules.training.weights import WEIGHTS
from tests.tuning import planned, tunings

SETTINGS, tuning = tunings(epochs=1, batch_size=16)
INT8 = {"quantization": "int8"}


@pytest.mark.parametrize("before", [{}, {"head_pruning.share": 0.5}], ids=["whole", "without half of the heads"])
def test_int8_scores_what_the_fine_tuning_has_trained(tiny, tmp_path, before):
    system = tiny.but(**{"model.num_layers": 2, "model.num_heads": 4})
    fitted, weights = finetune(tuning(system, from_scratch=True), tmp_path / "tuned"), tmp_path / "tuned" / WEIGHTS
    if before:
        fitted = finetune(tuning(system, weights, **before), tmp_path / "less")
        weights = tmp_path / "less" / WEIGHTS
    run = tuning(system, weights, **before, **INT8)
    rounded = finetune(run, tmp_path / "int8")
    assert rounded.metrics["toy.dev_loss"] == pytest.approx(fitted.metrics["toy.dev_loss"], abs=0.02)
    assert rounded.metrics["toy.dev_loss"] != fitted.metrics["toy.dev_loss"]
    assert rounded.cost["parameters"] == fitted.cost["parameters"]
    assert rounded.cost["tokens"] == expected_work(system, "toy", run.settings)[1] == 0
    assert rounded.examples.keys() == fitted.examples.keys()
    again = finetune(run, tmp_path / "again")
    assert (again.metrics, again.examples) == (rounded.metrics, rounded.examples)
    whole, (backbone, head) = finetuned(tuning(system, weights, **before), weights), finetuned(run, weights)
    example = next(iter(run.data.val_dataloader()))
    with torch.no_grad():
        exact, near = whole[1](whole[0](example), example), head(backbone(example), example)
    torch.testing.assert_close(near, exact, atol=0.1, rtol=0)
    assert not torch.equal(near, exact)


def test_all_linear_layers_of_the_encoder_are_int8_and_the_encoder_stays(tiny):
    system = tiny.but(**{"model.num_layers": 2, "model.embedding_size": 8})
    encoder = system.model.build(system.data.tokenizer.vocab_size)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    rounded = Quantized(encoder)
    assert not [part for part in rounded.modules() if type(part) is nn.Linear]
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_it_starts_from_the_fine_tuning_without_it(tiny):
    def tuned(**changes):
        return planned(tiny, SETTINGS.but(**changes))

    assert tuned(**INT8).by_role == {"start": tuned()}
    ticket = {"weight_pruning.share": 0.5}
    assert tuned(**INT8, **ticket).by_role == {"start": tuned(**ticket)}
    assert tuned(**INT8, from_scratch=True).start.by_role == {}


@pytest.mark.parametrize(
    ("model", "changes", "named"),
    [
        ({"model.positions": "relative"}, {}, ["finetuning.quantization", "rotary"]),
        ({}, {"features.layers": "last"}, ["features", "quantization"]),
    ],
)
def test_what_cannot_be_quantised_is_refused(tiny, model, changes, named):
    with pytest.raises((ConfigError, ValueError)) as caught:
        tuning(tiny.but(**model), **INT8, **changes).networks()
    assert all(name in str(caught.value) for name in named)
