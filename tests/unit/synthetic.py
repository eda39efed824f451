"""A masking-rate study that never ran: a grid, its cells and records with known effects."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ablations.core.disk import bars
from ablations.measurements.measurements import Measurements
from ablations.pages import report
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules.config import identity
from lightning_modules.measures.counting import Reached
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import FineTuning

RATE = "objectives.mlm.masking.rate"
LAYERS = "model.num_layers"
EFFECTS = {0.05: 0.16, 0.15: 0.0, 0.3: 0.05, 0.4: 0.12, 0.8: 0.95}  # nats above the loss at 15 %
TOKENS = np.geomspace(65_536, 16_777_216, 13)
BASE = SYSTEMS["mask15_large"]


def make_claim(**changes: Any) -> Claim:
    return Claim.read(
        {
            "id": "mask15.40_gt_15",
            "claim": "mask15.r.40_gt_15_mnli",
            "statement": "40 % masking is better than 15 %",
            "source": "Mask15, README mask-rate",
            "published_metric": "MNLI (%)",
            "published": {"a": 84.5, "b": 84.2},
            "metric": "heldout.loss",
            "a": {RATE: 0.4},
            "b": {RATE: 0.15},
            "proxy": "fine-tuned accuracy there, held-out loss here",
        }
        | changes
    )


def make_grid(**changes: Any) -> Grid:
    data = {
        "name": "masking_ratio",
        "question": "Does hiding more than 15 % of the tokens help?",
        "paper": "Wettig et al. 2022, arXiv 2202.08005",
        "base": "mask15_large",
        "axes": {RATE: list(EFFECTS)},
        "baseline": {RATE: 0.15},
        "seeds": 5,
        "budget": {"equal": "tokens"},
        "scales": {"laptop": {"description": "two minutes a run", "set": {"model.num_layers": 4}}},
        "metrics": [
            {"name": "heldout.loss", "label": "held-out loss (nats)"},
            {"name": "heldout.accuracy", "label": "held-out accuracy"},
        ],
        "published": [
            {
                "file": "mask15",
                "table": "README mask-rate",
                "match": {"rate": RATE},
                "metrics": ["MNLI", "QNLI", "SST-2"],
            }
        ],
        "figure": {"x": RATE, "y": "heldout.loss"},
    }
    claims = changes.pop("claims", [make_claim()])
    return Grid.read(data | changes | {"claims": [claim.to_dict() for claim in claims]})


def make_cell(values: dict[str, Any], seeds: int = 5, label: str = "", *, printed: Any = None, task: str = "") -> Cell:
    """A cell whose system is the base but for its label: reports never look inside it."""
    label = label or ", ".join(f"{path.rpartition('.')[2]}={value}" for path, value in values.items())
    system = BASE.but(**{path: value for path, value in values.items() if path in (RATE, LAYERS)})
    text = dict.fromkeys(system.data.corpora, identity(label))
    runs = tuple(Run.pretraining(system, seed, text) for seed in range(seeds))
    tuned = tuple(Run.finetuning_of(run, task, "examples", FineTuning()) for run in runs if task)
    return Cell(values=values, label=label, printed=printed or {}, system=system, runs=runs, finetunings=tuned)


def of_one_pretraining(cells: Sequence[Cell], task: str) -> list[Cell]:
    """The cells with the pretrainings of the first, from which each is fine-tuned in a way of its own."""
    runs, made = cells[0].runs, []
    for n, cell in enumerate(cells):
        tuned = tuple(Run.finetuning_of(run, task, "examples", FineTuning(epochs=n + 1)) for run in runs)
        made.append(cell.but(runs=runs, finetunings=tuned))
    return made


def make_record(run: Run, loss: float, **changes: Any) -> Record:
    """A finished run that ends at ``loss`` nats, on the way down from 9 nats through a plateau at about 6.4."""
    position = np.linspace(0, 1, len(TOKENS))
    fall = 1 / (1 + np.exp(-(position - 0.62) * 11))
    losses = loss + (6.45 - loss) * (1 - fall / fall[-1]) + 2.4 * np.exp(-position * 9)
    metrics = {
        "heldout.loss": loss,
        "heldout.accuracy": float(np.exp(-loss / 3)),
        "heldout.bigram_loss": 6.21,
        "heldout.unigram_loss": 7.02,
        "heldout.plateau": loss > 6.21,
    }
    values: dict[str, Any] = {
        "id": run.id,
        "kind": "pretrain",
        "config": {},
        "outcome": "done",
        "metrics": metrics,
        "curve": {"tokens": TOKENS.tolist(), "heldout.loss": losses.tolist()},
        "cost": {"seconds": 118.0, "tokens": 16_777_216.0, "flops": 3.1e14, "parameters": 5_123_456.0},
        "provenance": {"device": "cpu", "commit": "0123456789abcdef"},
    }
    return Record(**(values | changes))


def make_failure(run: Run, outcome: str = "diverged", detail: str = "loss is NaN at step 312") -> Record:
    return make_record(run, 9.9, outcome=outcome, detail=detail, metrics={}, curve={}, cost={})


def make_study(seeds: int = 5, noise: float = 0.03, **changes: Any) -> tuple[Grid, list[Cell], dict[str, Record]]:
    """Grid, cells and records of the five rates. Seeds differ much, but alike in every cell: pairing sees it."""
    draws = np.random.default_rng(0)
    shared = draws.normal(0, 0.08, seeds)
    cells = [make_cell({RATE: rate}, seeds) for rate in EFFECTS]
    records = {
        run.id: make_record(run, 4.61 + EFFECTS[cell.values[RATE]] + shared[run.seed] + draws.normal(0, noise))
        for cell in cells
        for run in cell.runs
    }
    return make_grid(**changes), cells, records


def make_objectives(seeds: int = 5, **changes: Any) -> tuple[Grid, list[Cell], dict[str, Record]]:
    """A study of sentence objectives: accuracies on pairs where there is a head, fine-tunings on RTE everywhere.

    Swapped pairs are told in 70 % by a model trained on them and in 50 % by one trained on random pairs; RTE is at 55 %
    for all, and a point higher from one objective to the next.
    """
    draws = np.random.default_rng(1)
    names = ("one segment", "pairs", "pairs, NSP", "pairs, SOP")
    cells = [make_cell({"objective": name}, seeds, task="rte") for name in names]
    records = {}
    for n, cell in enumerate(cells):
        for run, tuned in zip(cell.runs, cell.finetunings, strict=True):
            record = make_record(
                run, 4.6 + draws.normal(0, 0.03), layers={"distance": [3.0, 4.0 + n], "angle": [30, 40]}
            )
            found = {"heldout.sop_majority": 0.5, "heldout.sop_bow": 0.55, "heldout.sop_overlap": 0.5 + n / 100}
            if "," in names[n]:
                found["heldout.sop_accuracy"] = (0.5, 0.7)[n - 2] + draws.normal(0, 0.004)
            records[run.id] = record.but(metrics=record.metrics | found)
            score = {"rte.accuracy": 0.55 + n / 100 + draws.normal(0, 0.001), "rte.accuracy.majority": 0.527}
            records[tuned.id] = make_record(tuned, 0.0, kind="finetune", metrics=score, curve={})
    data = {
        "question": "Does a second objective help?",
        "axes": {"objective": list(names)},
        "variants": {"objective": {name: {} for name in names}},
        "baseline": {"objective": "pairs"},
        "tasks": ["rte", "cola"],
        "scales": {"laptop": {"tasks": ["rte"]}},
        "metrics": [
            {"name": "cola.matthews", "label": "CoLA correlation"},
            {"name": "heldout.sop_accuracy", "label": "accuracy on swapped pairs"},
            {"name": "rte.accuracy", "label": "RTE accuracy"},
        ],
        "published": [
            {"file": "albert", "table": "T5 SP-tasks", "match": {"objective": "objective"}, "metrics": ["SOP acc"]},
            {"file": "bert", "table": "T5 pretrain-tasks", "match": {"objective": "objective"},
             "where": {"num_layers": "12", "hidden_size": "768"}, "metrics": ["MNLI-m"]},
        ],
        "figure": {"x": "objective", "y": ["heldout.sop_accuracy", "rte.accuracy"]},
        "claims": [],
    }  # fmt: skip
    return make_grid(**(data | changes)), cells, records


def make_depths(seeds: int = 3) -> tuple[Grid, list[Cell], dict[str, Record]]:
    """A study of depth, layers their own or shared, in which 1, 2 and 4 layers stand for the papers' 3, 6 and 12."""
    draws = np.random.default_rng(2)
    own, theirs = (1, 2, 4), (3, 6, 12)
    cells = [
        make_cell({LAYERS: n, "layers": kind}, seeds, printed={LAYERS: published})
        for n, published in zip(own, theirs, strict=True)
        for kind in ("own", "shared")
    ]
    records = {
        run.id: make_record(run, 5.0 - cell.values[LAYERS] / 10 + draws.normal(0, 0.005))
        for cell in cells
        for run in cell.runs
    }
    match = {"num_layers": LAYERS, "layers": "layers"}
    where = {"hidden_size": "768", "num_heads": "12"}
    grid = make_grid(
        axes={LAYERS: list(theirs), "layers": ["own", "shared"]},
        variants={"layers": {"own": {}, "shared": {"model.sharing": "all"}}},
        baseline={LAYERS: 6},
        scales={"laptop": {"axes": {LAYERS: list(own)}, "stands_for": {LAYERS: list(theirs)}}},
        published=[
            {"file": "bert", "table": "T6 size", "match": match, "where": where, "metrics": ["LM ppl"]},
            {"file": "albert", "table": "T11 depth", "match": match, "metrics": ["Avg"]},
        ],
        figure={"x": LAYERS, "y": "heldout.loss"},
        claims=[make_claim(a={LAYERS: 12, "layers": "own"}, b={LAYERS: 3, "layers": "own"}, published={})],
    )
    return grid, cells, records


def losses(cell: Cell, values: list[float], **changes: Any) -> dict[str, Record]:
    """One finished run a value, the first seeds of a cell."""
    return {run.id: make_record(run, value, **changes) for run, value in zip(cell.runs, values, strict=False)}


def publish_page(plan: Any, records: Any, folder: Path) -> dict[str, Path]:
    """Writes the page of a plan from records."""
    return report.publish(plan, Measurements(plan.grid, plan.cells, records), folder)


def make_plan(grid: Grid, cells: list[Cell], **changes: Any) -> Any:
    """What a page needs of a plan."""
    given = {"scale": "laptop", "folder_name": "laptop", "excluded": (), "overrides": {}, "states": {}}
    return SimpleNamespace(**{"grid": grid, "cells": cells} | given | changes)


COUNTED = "product of counts of the two neighbours"


class Kept(dict):
    """Records of a folder in which counting reaches some nats on the held-out words of cells."""

    def __init__(self, records: dict[str, Record], folder: Path, cells: Sequence[Cell], nats: float) -> None:
        super().__init__(records)
        self.folder = folder
        self.bars = [bars.write(folder, bars.made(cell.runs[0], "mlm", reached(nats))) for cell in cells]


def reached(nats: float) -> Reached:
    """What counting reaches by the product of neighbours, and half a nat less by another method."""
    scores = {COUNTED: nats, "others": nats - 0.5}
    by_tokens = {50_000: nats + 0.25, 100_000: nats}
    return Reached(scores, by_tokens, {name: [] for name in scores}, {"training": 100_000}, "others", "these")
