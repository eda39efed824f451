"""Two processes under DDP train as one process does at the same global batch."""

import os
import socket

import pytest
import torch
from safetensors.torch import load_file

from tests.end_to_end import distributed
from tests.forking import forked
from tests.translations import RECURRENT, parallel_text, tiny_system

# Bernoulli masks: the ranks predict unequal numbers of tokens, so a mean of their means would differ.
BASE = {
    "model.dropout": 0.0, "model.attention_dropout": 0.0, "model.embedding_dropout": 0.0,
    "objectives.mlm.masking.count": "bernoulli", "optimizer.peak_lr": 3e-3, "optimizer.eps": 1e-3,
    "training.steps": 4, "training.batch_size": 12, "training.clip_norm": 0.1, "format.sequence_length": 16,
}  # fmt: skip
CASES = {
    "whole batches": {},
    "micro-batches": {"training.micro_batch_size": 2},
    "tokens": {"training.batch_by": "tokens", "format.break_mode": "documents", "training.micro_batch_size": 3},
    "a length curriculum": {"format.first_share": 0.5, "format.first_length": 10},
    "pairs": {
        "format.kind": "segment_pairs", "objectives.sentence": {}, "training.micro_batch_size": 3,
        "model.segment_types": 2, "format.sequence_length": 32, "model.max_positions": 32,
    },
    "a stream with a memory": {
        "model.positions": "relative", "model.memory_length": 20, "model.direction": "left_to_right",
        "objectives.mlm": None, "objectives.lm.direction": "left_to_right", "format.kind": "stream",
        "format.frame": "none", "training.micro_batch_size": 3,
    },
    "XLNet's rows, both ways with a memory": {
        "model.positions": "relative", "model.memory_length": 12, "model.query_stream": True, "model.segment_types": 0,
        "objectives.mlm": None, "objectives.plm.one_in": 4.0, "objectives.sentence": {}, "format.kind": "stream",
        "format.frame": "none", "format.both_ways": True, "format.sequence_length": 24, "format.reuse_length": 10,
        "format.rest": "pair", "training.micro_batch_size": 3,
    },
    "a stream that is carried": {
        "model.kind": "lstm", "model.hidden_size": 16, "model.dropout": 0.0, "model.embedding_dropout": 0.0,
        "objectives.mlm": None, "objectives.lm.direction": "left_to_right", "format.kind": "stream",
        "format.frame": "none", "training.micro_batch_size": 3,
    },
}  # fmt: skip


TRANSLATORS = {  # of pairs of similar length, in micro-batches
    "an encoder-decoder": {},
    "LSTMs that translate": {
        "model": RECURRENT["model"] | {"dropout": 0.0, "embedding_dropout": 0.0},
        "training.micro_batch_size": 3,
    },
}


@pytest.fixture
def systems(tiny, tmp_path):
    corpus = parallel_text(tmp_path / "text")
    own = {key: value for key, value in BASE.items() if not key.startswith(("objectives.", "format."))}
    own |= {"training.bucket_steps": 2, "training.batch_size": 12}
    made = {name: tiny.but(**BASE).but(**changes) for name, changes in CASES.items()}
    return made | {name: tiny_system(corpus, **own).but(**changes) for name, changes in TRANSLATORS.items()}


def _meeting():
    """What Lightning reads of the environment where ranks have been started: addresses of this machine alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0", "GLOO_SOCKET_IFNAME": "lo"}


def test_two_ranks_train_as_one_process(systems, tmp_path):
    expected = {name: distributed.train(system, 1) for name, system in systems.items()}
    meeting = _meeting()

    def work(rank):
        os.environ |= {**meeting, "LOCAL_RANK": str(rank)}
        distributed.train_all(systems, tmp_path)

    ranks = [forked(lambda rank=rank: work(rank)) for rank in range(distributed.RANKS)]
    assert [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks] == [0] * distributed.RANKS
    for name, one in expected.items():
        ranks = [load_file(tmp_path / f"{name}-{rank}.safetensors") for rank in range(distributed.RANKS)]
        for key, value in one.items():
            assert all(torch.equal(rank[key], ranks[0][key]) for rank in ranks), (name, key)
            assert torch.allclose(ranks[0][key], value, rtol=1e-6 * key.startswith("summed"), atol=1e-6), (name, key)
