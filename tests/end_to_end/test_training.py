"""Training as a whole: it learns, resumes to the bit, splits into micro-batches exactly, stops when it diverges."""

import math
from collections import Counter

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from safetensors.torch import load_file

from ablations.core.store import Records
from ablations.running import worker
from ablations.running.exit_codes import RECORDED
from ablations.running.job import Job
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.data import fingerprints
from lightning_modules.pretraining import fit
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.training.callbacks import CHECKPOINT, Interrupted, Progress
from lightning_modules.training.execution import Execution
from lightning_modules.training.weights import WEIGHTS
from tests.depth import crossed
from tests.messages import naming

QUIET = {
    "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
    "num_sanity_val_steps": 0, "limit_val_batches": 0,
}  # fmt: skip


RESUMED = {
    "whole batches": {},
    "micro-batches": {"training.micro_batch_size": 4},
    "steps by tokens": {
        "training.batch_by": "tokens", "format.break_mode": "documents", "training.micro_batch_size": 4,
    },
    "a length curriculum": {"format.first_share": 0.5, "format.first_length": 8},
    "BERT's optimiser": {"optimizer.bias_correction": False},
    "ALBERT": {
        "optimizer.algorithm": "lamb", "optimizer.bias_correction": True, "model.num_layers": 2, "model.sharing": "all",
        "model.embedding_size": 8,
    },
    "next and previous tokens": {
        "objectives.mlm": None, "objectives.lm.direction": "two_way", "model.direction": "two_way",
        "model.num_layers": 2, "training.micro_batch_size": 4,
    },
    "a stream with a memory": {
        "model.positions": "relative", "model.memory_length": 12, "model.direction": "left_to_right",
        "objectives.mlm": None, "objectives.lm.direction": "left_to_right", "format.kind": "stream",
        "format.frame": "none", "training.micro_batch_size": 4,
    },
    "XLNet's rows, both ways with a memory": {
        "model.positions": "relative", "model.memory_length": 12, "model.query_stream": True, "model.segment_types": 0,
        "objectives.mlm": None, "objectives.plm.one_in": 4.0, "objectives.sentence": {}, "format.kind": "stream",
        "format.frame": "none", "format.both_ways": True, "format.sequence_length": 24, "format.reuse_length": 10,
        "format.rest": "pair",
    },
    "a stream that is carried": {
        "model.kind": "lstm", "model.hidden_size": 16, "objectives.mlm": None, "format.kind": "stream",
        "objectives.lm.direction": "left_to_right", "format.frame": "document_ends", "training.micro_batch_size": 4,
    },
}  # fmt: skip


def stop_after(steps):
    asked = 0

    def stop():
        nonlocal asked
        asked += 1
        return asked == steps

    return stop


@pytest.fixture(scope="module")
def straight():
    """Micro-batch size -> what an undisturbed training gave; filled by the first test that needs it."""
    return {}


@pytest.mark.parametrize(("changes", "stop"), crossed(RESUMED, [7, 4, 12, 1]))
def test_resuming_is_bitwise_equal(tiny, tmp_path, straight, stop, changes):
    """Stopped after any step, with dropout and a fresh process's generators, the weights come out the same."""
    system = tiny.but(**RESUMED[changes])
    if changes not in straight:
        folder = tmp_path / "straight"
        result = fit(system, 0, folder)
        straight[changes] = result, load_file(folder / WEIGHTS)
    expected, weights = straight[changes]
    folder = tmp_path / "interrupted"
    with pytest.raises(Interrupted):
        fit(system, 0, folder, stop=stop_after(stop))
    torch.manual_seed(999)
    made: list[Progress] = []
    resumed = fit(system, 0, folder, on_progress=made.append)
    assert [one.step for one in made] == list(range(stop + 1, 13)), "no step is made twice"
    for name, tensor in load_file(folder / WEIGHTS).items():
        assert torch.equal(tensor, weights[name]), name
    assert resumed.metrics == expected.metrics
    assert resumed.curve == expected.curve


@pytest.mark.parametrize("changes", ["whole batches", "steps by tokens", "a length curriculum"])
def test_a_training_that_stops_early_is_the_checkpoint_of_a_whole_one(tiny, tmp_path, changes):
    system = tiny.but(**RESUMED[changes])
    with pytest.raises(Interrupted):
        fit(system, 0, tmp_path / "whole", stop=stop_after(7))
    stopped = fit(system.but(**{"training.stop_after": 7}), 0, tmp_path / "stopped")
    on_the_way = torch.load(tmp_path / "whole" / CHECKPOINT, weights_only=True)["state_dict"]
    for name, tensor in load_file(tmp_path / "stopped" / WEIGHTS).items():
        assert torch.equal(tensor, on_the_way[name]), name
    assert stopped.curve["step"][-1] == 7
    assert stopped.cost["tokens"] == system.tokens(7)


@pytest.mark.parametrize(("seconds", "written"), [(0.0, [False] + [True] * 11), (1e9, [False] * 12)])
def test_checkpoints_are_written_when_they_are_due(tiny, tmp_path, seconds, written):
    found = []

    def stop():
        found.append((tmp_path / CHECKPOINT).exists())
        return False

    fit(tiny, 0, tmp_path, stop=stop, execution=Execution(checkpoint_seconds=seconds))
    assert found == written


def test_a_training_says_that_it_changed_its_kind_of_device(tiny, tmp_path):
    records, run = Records(tmp_path / "results"), Run.pretraining(tiny, 0, fingerprints(tiny.data))
    folder = records.make_work_folder(run.id)
    with pytest.raises(Interrupted):
        fit(tiny, 0, folder, stop=stop_after(5), run_id=run.id)
    held = torch.load(folder / CHECKPOINT, weights_only=True)
    (recorder,) = (state for state in held["callbacks"].values() if "curve" in state)
    assert recorder["devices"] == ["cpu"]
    recorder["devices"] = ["NVIDIA H100 80GB HBM3"]  # where it began
    torch.save(held, folder / CHECKPOINT)
    code = worker.attempt(Job(run.to_dict(), str(records.folder), str(folder)), lambda: False)
    assert code == RECORDED
    assert records.get(run.id).provenance["device"] == "NVIDIA H100 80GB HBM3 then cpu"


@pytest.mark.parametrize("changes", ["whole batches", "steps by tokens", "a length curriculum"])
def test_costs_count_what_was_shown(tiny, tmp_path, changes):
    system = tiny.but(**RESUMED[changes])
    result = fit(system, 0, tmp_path)
    examples = list(system.data_module(0).train_dataloader())
    real = sum(int(example.inputs.real.sum()) for example in examples)
    rows = Counter(example.inputs.ids.shape for example in examples)
    assert result.cost["real_tokens"] == real
    assert result.cost["tokens"] == system.tokens()
    if changes == "steps by tokens":
        assert real == pytest.approx(system.tokens(), abs=16)
        assert result.cost["flops"] < system.flops(), "that of the plan is for full rows"
    else:
        assert system.tokens() == sum(n * b * t for (b, t), n in rows.items())
        assert result.cost["flops"] == system.flops()
        assert real < system.tokens()
        shown = np.cumsum([example.inputs.ids.numel() for example in examples])
        assert result.curve["tokens"] == [shown[int(step) - 1] for step in result.curve["step"]]
    assert result.curve["tokens"][-1] == result.cost["tokens"]


def test_sequences_that_are_presented_twice_cost_twice(tiny, tmp_path):
    changes = {"objectives.mlm.masking.rate": 0.2, "objectives.mlm.masking.count": "round"}
    again = {"objectives.mlm.masking.predicted": 0.4}
    still = {f"model.{name}": 0.0 for name in ("dropout", "attention_dropout", "embedding_dropout")}
    split = {"training.micro_batch_size": 4, **again, **still}
    once, twice, parts = (
        fit(tiny.but(**changes, **more), 0, tmp_path / str(number)) for number, more in enumerate(({}, again, split))
    )
    assert twice.cost["tokens"] == 2 * once.cost["tokens"] == parts.cost["tokens"]
    assert twice.cost["flops"] == 2 * once.cost["flops"]
    assert twice.curve["tokens"] == [2 * tokens for tokens in once.curve["tokens"]]
    assert twice.metrics["heldout.loss"] != once.metrics["heldout.loss"]


def test_it_learns_what_is_there_to_learn(tiny, tmp_path):
    """The corpus is a noisy cycle of words: a neighbour tells the word four times in five."""
    system = tiny.but(
        **{
            "training.steps": 600, "training.batch_size": 16, "model.dropout": 0.0, "model.attention_dropout": 0.0,
            "model.embedding_dropout": 0.0, "model.positions": "sided_linear_bias", "model.hidden_size": 32,
            "objectives.mlm.masking.rate": 0.3, "evaluation.sequences": 64,
        }
    )  # fmt: skip
    fitted = fit(system, 0, tmp_path)
    losses = fitted.curve["heldout.loss"]
    assert losses[-1] < losses[0] - 0.5
    assert losses[-1] < fitted.metrics["heldout.unigram_loss"] - 1.0
    assert fitted.metrics["heldout.plateau"] == (losses[-1] > fitted.metrics["heldout.bigram_loss"])
    assert fitted.cost["tokens"] == 600 * 16 * 16
    assert fitted.curve["tokens"][-1] == fitted.cost["tokens"]


def test_the_last_measurement_may_have_more_text(tiny, tmp_path):
    """Training and curve stay; the final loss, its baselines and the losses by sequence are of the larger set."""
    few = fit(tiny, 0, tmp_path / "few")
    many = fit(tiny.but(**{"evaluation.final_sequences": 3 * tiny.evaluation.sequences}), 0, tmp_path / "many")
    assert many.curve == few.curve
    assert few.metrics["heldout.loss"] == few.curve["heldout.loss"][-1]
    kept, own = many.sums["losses"]["loss"], few.sums["losses"]["loss"]
    nats, counts = (unpack(kept[name]).astype(float) for name in ("nats", "counts"))
    assert len(nats) == 3 * len(unpack(own["nats"]))
    assert many.metrics["heldout.loss"] == pytest.approx(nats.sum() / counts.sum(), rel=1e-3)
    assert many.metrics["heldout.bigram_loss"] != few.metrics["heldout.bigram_loss"]
    assert many.metrics.keys() == few.metrics.keys()
    assert many.sums["text"] != few.sums["text"]


@pytest.mark.parametrize("micro", [8, 4, 3, 1])
def test_micro_batches_give_the_gradient_of_the_whole_batch(tiny, micro):
    """Bernoulli masks, so micro-batches hold unequal numbers of predictions: a mean of means would differ."""
    system = tiny.but(
        **{
            "model.dropout": 0.0, "model.attention_dropout": 0.0, "model.embedding_dropout": 0.0,
            "objectives.mlm.masking.count": "bernoulli", "training.batch_size": 24, "training.steps": 1,
        }
    )  # fmt: skip

    def gradients(size):
        changed = system.but(**{"training.micro_batch_size": size})
        module, data = changed.build(0).double(), changed.data_module(0)
        kept = {}

        class Keep(pl.Callback):
            def on_before_optimizer_step(self, trainer, module, optimizer):
                kept.update({name: p.grad.clone() for name, p in module.named_parameters()})

        trainer = pl.Trainer(
            max_steps=1, accumulate_grad_batches=24 // (size or 24), accelerator="cpu", precision="64-true",
            callbacks=[Keep()], **QUIET,
        )  # fmt: skip
        trainer.fit(module, data)
        return kept

    whole, split = gradients(None), gradients(micro)
    for name, gradient in whole.items():
        assert torch.allclose(gradient, split[name], rtol=1e-4, atol=1e-7), name  # logits are compared in fp32


@pytest.mark.parametrize("asked", [0, 0.5, 1.0])
def test_a_trainer_that_clips_otherwise_than_the_recipe_is_refused(tiny, asked):
    system = tiny.but(**{"training.clip_norm": 1.0})
    clipping = {"gradient_clip_val": asked, "gradient_clip_algorithm": "norm"}
    trainer = pl.Trainer(max_steps=1, accelerator="cpu", **clipping, **QUIET)
    if asked == 1.0:
        trainer.fit(system.build(seed=0), system.data_module(seed=0))
        assert trainer.global_step == 1
    else:
        with pytest.raises(ConfigError, match=rf"gradient_clip_val: .* {asked:g}, .*training.clip_norm"):
            trainer.fit(system.build(seed=0), system.data_module(seed=0))


@pytest.mark.parametrize("value", [None, 1.0])
def test_a_trainer_that_clips_values_is_refused(tiny, value):
    system = tiny.but(**{"training.clip_norm": 1.0})
    by_value = {"gradient_clip_val": value, "gradient_clip_algorithm": "value"}
    with pytest.raises(ConfigError, match=naming("gradient_clip_algorithm", "value", "training.clip_norm")):
        pl.Trainer(max_steps=1, accelerator="cpu", **by_value, **QUIET).fit(system.build(0), system.data_module(0))


def test_building_leaves_the_callers_generator_alone(tiny):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    tiny.build(seed=0)
    assert torch.equal(torch.rand(1), expected)


def test_a_full_disk_leaves_the_last_checkpoint(tiny, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(tiny, 0, folder, stop=stop_after(5))
    before = (folder / CHECKPOINT).read_bytes()

    def full(checkpoint, file):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        fit(tiny, 0, folder, stop=stop_after(3))
    assert (folder / CHECKPOINT).read_bytes() == before
    assert [path.name for path in folder.iterdir()] == [CHECKPOINT]


def test_bf16_stays_close_to_fp32(tiny, tmp_path):
    losses = [
        fit(tiny.but(**{"training.precision": precision}), 0, tmp_path / precision).metrics["heldout.loss"]
        for precision in ("fp32", "bf16")
    ]
    assert not math.isclose(*losses, rel_tol=1e-7)
    assert math.isclose(*losses, rel_tol=0.01)
