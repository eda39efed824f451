"""Trains plain and compiled layers, and prints their losses; a program, since checked annotations cannot be compiled.

``python -m tests.identities.compiling SYSTEM FOLDER``, the system as JSON.
"""

import itertools
import json
import sys
from pathlib import Path

import torch

from lightning_modules.pretraining import fit
from lightning_modules.system import System
from lightning_modules.training.execution import Execution, compiled

STEPS = 20


def losses(system, compile_layers):
    """The loss of each step, in fp32."""
    module = system.build(0).train()
    if compile_layers:
        compiled(module)
    optimizer, found = module.configure_optimizers()["optimizer"], []
    for example in itertools.islice(system.data_module(0).train_dataloader(), STEPS):
        terms = module.objectives.loss(module.heads, module.backbone(example), example)
        loss = sum(total / count for total, count, _ in terms.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def main(system, folder):
    """Says all that is compared."""
    torch.set_num_threads(1)
    system = System.read(json.loads(system))
    told = {"plain": losses(system, False), "compiled": losses(system, True)}
    told["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    told["execution"] = fit(system, 0, Path(folder), execution=Execution(compile_layers=True)).execution
    told["graphs after"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
