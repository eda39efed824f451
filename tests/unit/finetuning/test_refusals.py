"""Settings of fine-tunings that contradict each other, and what is said of each."""

import pytest

from lightning_modules.config import ConfigError
from lightning_modules.tasks import FineTuning
from tests.every import every

FROZEN, PRUNED = {"features.layers": "last"}, {"weight_pruning.share": 0.5}
GRADUAL, KEPT = {"freezing": "gradual"}, {"weight_pruning.weights": "kept"}


@every(
    "changes, said",
    [
        ({"auxiliary_lm": 0.5} | FROZEN, "a frozen encoder learns from no loss"),
        ({"auxiliary_lm": 0.5, "bilstm_layers": 1}, "reads the encoder and not a BiLSTM"),
        ({"bilstm_layers": 1} | FROZEN, "features.bilstm_layers of its own"),
        ({"bilstm_layers": 1, "first": "mnli"}, "the BiLSTM is new for each task"),
        ({"layout": "extract"} | FROZEN, "new symbols of layout extract would stay random"),
        (GRADUAL | {"from_scratch": True}, "freezing gradual keeps what a pretrained encoder knows"),
        (GRADUAL | FROZEN, "features freeze it whole"),
        (GRADUAL | {"optimizer.algorithm": "lamb"}, "lamb counts one for all"),
        ({"freezing": "chain_thaw", "optimizer.rate_divisor": 2.6}, "Set optimizer.rate_divisor to 1"),
        ({"freezing": "last", "layout": "extract"}, "would stay random with freezing last"),
        ({"freezing": "graduall"}, "Did you mean 'gradual'"),
        ({"layers_transferred": 1, "from_scratch": True}, "from_scratch transfers no layer"),
        ({"layers_transferred": 1, "first": "sst2"}, "the task in first has trained all layers"),
        ({"layers_transferred": 1} | FROZEN, "would stay random in a frozen encoder"),
        ({"window": 8} | FROZEN, "features needs all states of a row"),
        ({"window": 8, "bilstm_layers": 1}, "bilstm_layers needs all states"),
        ({"window": 8, "auxiliary_lm": 0.5}, "auxiliary_lm needs all states"),
        ({"window": 8, "reader": "first"}, r"reader first needs all states of a row, .* keeps none\. Use last, max"),
        ({"weight_pruning.round": 2}, "round 2 is after the last of rounds"),
        ({"weight_pruning.rounds": 2, "weight_pruning.choose": "random"}, "set mask_from to task and choose"),
        (KEPT | {"weight_pruning.mask_from": "pretraining"}, "use rewound"),
        (KEPT | {"weight_pruning.mask_from": "other"}, "another task.*use rewound"),
        (KEPT | {"weight_pruning.rewind_to": 5}, "rewind_to has no effect"),
        (PRUNED | FROZEN, "features"),
        (PRUNED | {"from_scratch": True}, "from_scratch"),
        (PRUNED | {"head_pruning.share": 0.5}, "head_pruning"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(changes, said):
    with pytest.raises(ConfigError, match=said):
        FineTuning().but(**changes)
