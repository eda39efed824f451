"""Tiny plans whose runs start from the weights of others."""

import re

from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.schema.record import Record
from tests import tiny

RATE, LAYERS, WARM = "objectives.mlm.masking.rate", "model.num_layers", "training.warm_start"


def read(folder, *, axes="", extra="", knobs=(), **options):
    """The tiny grid with more axes (lines), further keys, and other knobs for all cells."""
    file = tiny.grid(folder, extra=extra, **options)
    text = file.read_text().replace("axes:\n", f"axes:\n{axes}")
    for path, value in dict(knobs).items():
        text = re.sub(rf"  {re.escape(path)}: .*\n", "", text).replace("set:\n", f"set:\n  {path}: {value}\n", 1)
    file.write_text(text)
    return grids.read(file)


def planned(folder, records=None, **options):
    return plan(read(folder, **{"rates": "[0.15]", "seeds": 1, **options}), "smoke", records=records)


def put(records, run, outcome="done", **changes):
    return records.put(Record(id=run.id, kind=run.kind, config=run.to_dict(), outcome=outcome, **changes))
