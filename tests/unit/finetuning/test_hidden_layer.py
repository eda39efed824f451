"""The classifier of ULMFiT: concat pooling, batch norm, dropout, 50 units, batch norm, dropout, classes."""

import re

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from ablations.commands.cli import app
from lightning_modules.batch import Encoded
from lightning_modules.finetuning.run import finetune
from lightning_modules.tasks.settings import HiddenLayer
from lightning_modules.tasks.shapes.texts import TextHead
from lightning_modules.training.optimizers import parameter_groups
from tests.tuning import accuracy, tunings

SETTINGS, tuning = tunings(epochs=6, reader="concat", pooler=False, hidden_layer={"units": 12, "dropout": 0.2})


def vectors(count, width):
    noise = torch.Generator().manual_seed(0)
    states = torch.randn(count, 1, width, generator=noise)
    return Encoded(layers=[states], last=states, table=torch.zeros(1, 1), vectors=3 + 2 * states[:, 0])


@pytest.mark.parametrize("training", [True, False])
def test_it_is_the_released_codes_block(training):
    """``LinearBlock``: lin(drop(bn(x))), twice, with a ReLU between; here without dropout."""
    head = TextHead(4, 2, 0.0, "concat", False, hidden=HiddenLayer(units=5, dropout=0.0)).train(training)
    own = nn.Sequential(nn.BatchNorm1d(12), nn.Linear(12, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 2))
    own.train(training)
    with torch.no_grad():
        for theirs, ours in ((own[0], head.hidden[0]), (own[1], head.hidden[2]), (own[3], head.hidden[4])):
            theirs.load_state_dict(ours.state_dict())
        own[4].load_state_dict(head.output.state_dict())
    encoded = vectors(7, 12)
    for _ in range(2):  # running means, too
        assert torch.allclose(head(encoded, None), own(encoded.vectors), atol=1e-6)
    assert torch.allclose(head.hidden[0].running_mean, own[0].running_mean)


def test_each_dropout_lies_before_its_linear_layer():
    head = TextHead(4, 2, 0.5, "concat", False, hidden=HiddenLayer(units=400, dropout=0.25))
    head.train()
    seen = {}
    for name, layer in (("first", head.hidden[2]), ("last", head.output)):
        layer.register_forward_pre_hook(lambda _, given, name=name: seen.update({name: given[0]}))
    head(vectors(200, 12), None)
    assert float((seen["first"] == 0).float().mean()) == pytest.approx(0.25, abs=0.03)
    assert float((seen["last"] == 0).float().mean()) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("task", ["toy", "toy_options"])
def test_it_learns_and_is_read_again(tiny, tmp_path, task, precision):
    run = tuning(tiny, task=task, precision=precision)
    fitted = finetune(run, tmp_path)
    assert fitted.metrics[f"{task}.accuracy"] > 0.6
    near = 0.01 if precision == "fp32" else 0.05
    assert accuracy(run, tmp_path) == pytest.approx(fitted.metrics[f"{task}.accuracy"], abs=near)


def test_a_batch_of_one_row_trains(tiny, tmp_path):
    settings = SETTINGS.but(train_examples=9, batch_size=8, epochs=2)
    assert finetune(tuning(tiny, settings=settings), tmp_path).metrics["toy.dev_loss"] > 0


def test_batch_norm_has_no_weight_decay():
    head = TextHead(4, 2, 0.1, "concat", False, hidden=HiddenLayer(units=5))
    weights, spared = ({id(p) for p in group["params"]} for group in parameter_groups(head, 0.1, decay_all=False))
    norms = [part for part in head.modules() if isinstance(part, nn.BatchNorm1d)]
    assert {id(p) for norm in norms for p in norm.parameters()} <= spared
    assert weights == {id(head.hidden[2].weight), id(head.output.weight)}


def test_params_counts_the_network_that_the_lecture_prints():
    """60,003 words of 300, layers of 1,150, 1,150 and 300, and a classifier of 900, 50 and 2 units."""
    sizes = ["model.embedding_size=300", "model.output_size=300", "data.tokenizer.vocab_size=60003"]
    changes = [part for size in [*sizes, "finetuning.protocol=ulmfit"] for part in ("--set", size)]
    printed = CliRunner().invoke(app, ["params", "ulmfit", "--task", "imdb", *changes]).output
    assert re.search(r"all +37,058,752", printed)
    assert re.search(r"imdb head +47,052", printed)
