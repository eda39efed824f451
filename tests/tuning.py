"""Small fine-tunings: the settings that a file of tests begins with, and runs of them."""

import torch

from ablations.schema.run import Run
from lightning_modules.finetuning.run import FinetuningRun, finetuned
from lightning_modules.tasks import FineTuning
from lightning_modules.training.weights import WEIGHTS


def tunings(**own):
    """Settings of quick fine-tunings, and a function that makes one of a system, with other settings if need be."""
    usual = {"epochs": 2, "batch_size": 8, "max_length": 16, "precision": "fp32", "optimizer.peak_lr": 1e-2}
    base = FineTuning().but(**usual | own)

    def tuning(system, weights=None, task="toy", seed=0, settings=base, mask=None, teacher=None, **changes):
        return FinetuningRun(system, task, settings.but(**changes), seed, weights, mask=mask, teacher=teacher)

    return base, tuning


def planned(system, settings, task="toy", seed=0):
    """A planned fine-tuning; its ``start`` is the pretraining, if nothing lies between."""
    pretrained = Run.pretraining(system, seed, dict.fromkeys(system.corpora, "text"))
    return Run.finetuning_of(pretrained, task, "examples", settings)


@torch.no_grad()
def accuracy(run, folder):
    """The share of the dev examples that the weights in a folder answer rightly."""
    backbone, head = finetuned(run, folder / WEIGHTS)
    right = []
    for example in run.data.val_dataloader():
        outputs = head(backbone(example), example)
        gold = example.targets[head.target].ids.view(len(outputs), -1)
        right += (outputs.argmax(1) == (gold.argmax(1) if gold.shape[1] > 1 else gold[:, 0])).tolist()
    return sum(right) / len(right)
