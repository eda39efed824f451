"""Heads of fine-tunings in the classes of transformers: equal numbers both ways, and what has no class is said."""

import pytest
import torch
import transformers

from lightning_modules import interop
from lightning_modules.batch import Example, Target
from lightning_modules.finetuning.run import FinetuningRun
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import FineTuning, task_named
from lightning_modules.tasks.shapes.tagging import TAG
from lightning_modules.training.weights import keep_weights
from tests.conftest import make_tokens

SMALL = {"data.tokenizer.vocab_size": 70, "model.num_layers": 2, "model.hidden_size": 32, "model.num_heads": 4}
SMALL |= {"model.ffn_size": None}
SHAPE = SMALL | {"model.max_positions": 26, "format.sequence_length": 20}
XLNET = SMALL | {"format.sequence_length": 20}
SYSTEM = {
    "bert": SYSTEMS["bert_base"].but(**SHAPE),
    "roberta": SYSTEMS["roberta_base"].but(**SHAPE),
    "albert": SYSTEMS["albert_base"].but(**SHAPE, **{"model.embedding_size": 12}),
    "distilbert": SYSTEMS["distilbert"].but(**SHAPE, **{"training.start": {}, "training.start_layers": []}),
    "xlnet": SYSTEMS["xlnet_base"].but(**XLNET),
}
ROWS = {"rte": 1, "stsb": 1, "conll2003": 1, "squad1": 1, "copa": 2}


@torch.no_grad()
def saved(family, task, folder, **settings):
    """A random fine-tuning as a checkpoint in a folder, and its networks."""
    settings = {"layout": "cls_last" if family == "xlnet" else "cls_sep", "max_length": 20} | settings
    run = FinetuningRun(SYSTEM[family], task, FineTuning().but(**settings), 0, None)
    backbone, head = run.networks()
    networks = torch.nn.ModuleDict({"backbone": backbone, "head": head}).eval()
    for parameter in networks.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    keep_weights(networks, folder)
    checkpoint = interop.tuned(interop.of_run(run.system, {}), run, folder / "weights.safetensors")
    interop.write(checkpoint, folder / "out")
    return checkpoint, networks


@torch.no_grad()
@pytest.mark.parametrize("family", SYSTEM)
def test_transformers_answers_with_the_same_numbers(family, tmp_path):
    tasks = {task: rows for task, rows in ROWS.items() if family != "xlnet" or task != "conll2003"}
    for task, rows in tasks.items():  # tags are read from rows that begin with [CLS]
        (folder := tmp_path / task).mkdir()
        checkpoint, networks = saved(family, task, folder)
        if checkpoint.head is None:  # DistilBERT has another activation before its classifier
            assert (family, task) in [("distilbert", name) for name in ("rte", "stsb", "copa")]
            assert any("no class for its" in note for note in checkpoint.notes)
            continue
        cls = getattr(transformers, checkpoint.family.tasks[checkpoint.head.kind][0])
        theirs, told = cls.from_pretrained(folder / "out", output_loading_info=True)
        assert not any(told.values()), told
        tokens = make_tokens(rows=4, length=20, vocab_size=70, padding=5 if family != "xlnet" else 0)
        tokens.tables["segment"][:, 11:] = family in ("bert", "albert", "xlnet")
        real = tokens.real
        ids = tokens.ids.masked_fill(~real, theirs.config.pad_token_id)
        given = {"input_ids": ids, "attention_mask": real.long(), "token_type_ids": tokens.tables["segment"]}
        if family == "distilbert":
            del given["token_type_ids"]
        out = theirs.eval()(**{k: v.view(-1, rows, 20) if task == "copa" else v for k, v in given.items()})
        expected = torch.stack([out.start_logits, out.end_logits], -1) if task == "squad1" else out.logits
        for name, (backbone, head) in {"ours": networks.values(), "read": _read(folder / "out", rows)}.items():
            example = Example.of(tokens)
            example.targets[TAG] = Target(real.flatten().nonzero()[:, 0], real.flatten().nonzero()[:, 0] * 0)
            found = head(backbone(example), example)
            wanted = expected.flatten(0, 1)[real.flatten()] if task == "conll2003" else expected
            if task == "squad1":
                found, wanted = found[real], wanted[real]
            if task == "copa":  # a bias is the same for all options
                found, wanted = found - found.mean(1, keepdim=True), wanted - wanted.mean(1, keepdim=True)
            assert (found - wanted).abs().max() <= 1e-5, (task, name)
        labels = getattr(task_named(task).shape, "labels", ())
        assert interop.read(folder / "out").head.labels == labels
        if labels:
            assert [*theirs.config.id2label.values()] == [*labels]


def _read(folder, options):
    checkpoint = interop.read(folder)
    return checkpoint.build().backbone.eval(), interop.read_head(checkpoint, options)


def test_a_head_that_has_no_class_is_left_out_and_said(tmp_path):
    cases = {"reader mean": {"reader": "mean"}, "both_orders": {"both_orders": True}}
    for number, (what, settings) in enumerate(cases.items()):
        (folder := tmp_path / str(number)).mkdir()
        checkpoint, _ = saved("bert", "mrpc" if "orders" in what else "rte", folder, **settings)
        assert any("no class for finetuning." in note and what in note for note in checkpoint.notes), what
        assert transformers.AutoModel.from_pretrained(folder / "out")
