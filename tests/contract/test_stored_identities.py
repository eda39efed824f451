"""Stored configurations keep their identities for ever; otherwise every record made so far would be lost.

A new knob with a neutral value leaves these alone. If this test fails, a neutral value, a name, the meaning of a
derived default or the canonical form was changed: restore it, or give the old spelling a meaning. Rows are added,
never rewritten; a system that is corrected gets another row::

    python -m tests.contract.test_stored_identities
"""

import json
from pathlib import Path

from ablations.schema.run import Run
from lightning_modules.config import identity
from lightning_modules.systems import SYSTEMS
from tests.every import every

STORED = Path(__file__).with_name("stored_identities.json")
GENERATION = {"data": 1, "pretrain": 3, "evaluate": 1}  # of the identities that are written here
PRINTS = {"wikipedia-mini": "0" * 64}
SMALL = {
    "model.num_layers": 2,
    "model.hidden_size": 128,
    "data.corpora": ["wikipedia-mini"],
    "data.tokenizer.vocab_size": 4096,
    "format.sequence_length": 64,
    "training.steps": 1000,
}
VARIANTS = {
    "small": {},
    "rate": {"objectives.mlm.masking.rate": 0.1 + 0.05},
    "whole numbers": {"model.dropout": 0, "optimizer.weight_decay": 1},
    "pre-norm": {"model.norm": "pre"},
    "linear biases": {"model.positions": "linear_bias"},
    "no positions": {"model.positions": "none", "model.max_positions": 77},
    "heads": {"model.num_heads": 4, "model.ffn_size": 300},
    "capped static masks": {"objectives.mlm.masking.cap": 20, "objectives.mlm.masking.copies": 10},
    "micro-batches": {"training.micro_batch_size": 8, "training.batch_size": 64, "training.clip_norm": 0.0},
    "fp32": {"training.precision": "fp32"},
    "next tokens": {
        "objectives.mlm": None,
        "objectives.lm.direction": "left_to_right",
        "model.direction": "left_to_right",
    },
    "each way, joined": {"model.direction": "two_way"},
    "left only at test": {"evaluation.direction": "left_to_right"},
}


def runs():
    """The configurations whose identities are kept; add to them freely."""
    found = {}
    for name, system in SYSTEMS.items():
        behind = dict.fromkeys(system.corpora, "0" * 64) if system.training.start else {}
        found[name] = Run.pretraining(system, 0, PRINTS | behind)
    for number, (name, changes) in enumerate(VARIANTS.items()):
        system = SYSTEMS["roberta_base"].but(**{**SMALL, **changes})
        found[name] = Run.pretraining(system, number, PRINTS)
    return found


def stored():
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}


def test_stored_configurations_keep_their_identities():
    now = {name: identity(Run.read(row["config"]).essence())[:16] for name, row in stored().items()}
    assert now == {name: row["id"] for name, row in stored().items()}


def test_there_are_a_dozen_and_each_is_stored():
    assert len(stored()) >= 12
    assert set(runs()) <= set(stored()), "python -m tests.contract.test_stored_identities adds the new ones"


BYTES = {"data.tokenizer.kind": "byte_bpe"}
WORDS = {"objectives.mlm.masking.units.kind": "whole_words"}
PAIRS = {"evaluation.pairs": 64}
BEFORE = [  # changes -> the identity while byte-level pieces of parts of letters passed for words; whether it stays
    (BYTES, "70f354de87d9c8c4", True),
    (BYTES | WORDS, "15fb6e769830a2a7", False),
    (BYTES | {"objectives.mlm.masking.units.kind": "spans"}, "6ad1a7b6bdc64128", False),
    (BYTES | {"evaluation.neighbours": 64}, "521a08e395a51df0", False),
    (WORDS | {"data.tokenizer.kind": "wordpiece"}, "fc6d9710b03c31d0", True),
    ({"evaluation.neighbours": 64, "data.tokenizer.kind": "unigram"}, "21ef5c89888deb09", True),
    (BYTES | PAIRS, "262fa8e758094d0c", False),  # before parts of letters, and a space alone, were of a word's class
    (PAIRS | {"data.tokenizer.kind": "unigram"}, "efdb44c5097bd43f", False),
    (PAIRS | {"data.tokenizer.kind": "wordpiece"}, "477280e19437a1ff", True),
    (PAIRS | {"data.tokenizer.kind": "letter_bpe"}, "c7885d57ecaaf2dc", True),
    ({"data.tokenizer.kind": "unigram"}, "d84c00e90d04e46b", True),
]


@every("changes, before, stays", BEFORE)
def test_only_runs_that_read_letters_of_pieces_that_cut_them_have_another_identity(changes, before, stays):
    run = Run.pretraining(SYSTEMS["roberta_base"].but(**SMALL, **changes), 0, PRINTS)
    assert (run.of_generation(GENERATION).id == before) == stays


if __name__ == "__main__":
    rows = stored()
    for name, run in runs().items():
        rows.setdefault(name, {"id": run.id, "config": run.to_dict()})
    STORED.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()) + "\n}\n")
