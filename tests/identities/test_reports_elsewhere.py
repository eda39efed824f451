"""Silent faults that others reported of other libraries, each tried here; a docstring names the fault and its thread.

Those of tokenizers that are read from folders are in `tests.unit.interop.test_own_tokenizer`, that of lines in
`tests.unit.commands.test_language`.
"""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from safetensors.torch import load_file
from sklearn.metrics import f1_score
from torch import nn

from lightning_modules.batch import Example, Target
from lightning_modules.data import TextFormat
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.finetuning.run import FinetuningRun
from lightning_modules.generation.generate import generate
from lightning_modules.generation.language_model import Wording
from lightning_modules.generation.scoring import log_probabilities
from lightning_modules.measures.final_metrics import measures
from lightning_modules.model import Transformer
from lightning_modules.objectives import LanguageModel
from lightning_modules.pretraining import fit
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.training import callbacks
from lightning_modules.training.callbacks import CHECKPOINT, Diverged, Interrupted
from lightning_modules.training.module import Pretrain, step_loss
from lightning_modules.training.optimizers import clip, parameter_groups
from lightning_modules.training.weights import WEIGHTS, keep_weights, load_weights
from tests.conftest import make_tokens
from tests.end_to_end.test_training import QUIET, RESUMED, stop_after
from tests.language_models import SENTENCES, model
from tests.toy import toy_task
from tests.unit.data.test_formats import make_store

POSITIONS = ["learned", "sinusoidal", "linear_bias", "sided_linear_bias", "rotary", "relative", "relative_learned"]
TINY = Transformer(num_layers=2, hidden_size=32, num_heads=2, max_positions=32, init_std=0.2)
BFLOAT16 = {"training.precision": "bf16"}


class Loader(list):
    """Batches for Lightning, which takes a plain list for several loaders."""


def encoder(positions: str, **changes):
    torch.manual_seed(0)
    return TINY.but(positions=positions, **changes).build(50).eval()


class TestSavingAndResuming:
    def test_speed_counts_the_time_of_all_sessions(self, tiny, tmp_path, monkeypatch):
        """After resuming, all tokens were divided by the time of the last session (huggingface/transformers#40560)."""
        clock, original, speeds = [0.0], Pretrain.training_step, []

        def step(self, example, index):
            clock[0] += 1
            return original(self, example, index)

        monkeypatch.setattr(
            callbacks, "time", SimpleNamespace(monotonic=lambda: clock[0], process_time=lambda: clock[0])
        )
        monkeypatch.setattr(Pretrain, "training_step", step)
        with pytest.raises(Interrupted):
            fit(tiny, 0, tmp_path, stop=stop_after(7))
        clock[0] += 1000  # between the sessions
        fitted = fit(tiny, 0, tmp_path, on_progress=lambda progress: speeds.append(progress.tokens_per_second))
        assert fitted.cost["seconds"] == 12.0, "a second for each step"
        assert fitted.cost["tokens_per_second"] == 8 * 16
        assert speeds == pytest.approx([8 * 16] * 5)

    @pytest.mark.parametrize("positions", POSITIONS)
    def test_what_no_file_holds_is_made_again(self, tmp_path, positions):
        """Buffers that are not saved were left as the memory was (huggingface/transformers#48892)."""
        made = encoder(positions)
        keep_weights(made, tmp_path)
        torch.manual_seed(1)
        read = TINY.but(positions=positions).build(50).eval()
        read.load_state_dict(load_weights(tmp_path / WEIGHTS))
        example = Example.of(make_tokens(padding=5))
        assert torch.equal(read(example).last, made(example).last)

    def test_moments_of_another_order_are_not_taken(self, tiny, tmp_path):
        """Moments went to other parameters where those had changed places (pytorch/pytorch#1489)."""
        one, two = "backbone.blocks.0.attention.norm.weight", "backbone.blocks.0.ffn.norm.weight"
        fit(tiny, 0, tmp_path / "straight")
        with pytest.raises(Interrupted):
            fit(tiny, 0, tmp_path / "resumed", stop=stop_after(5))
        path = tmp_path / "resumed" / CHECKPOINT
        held, module = torch.load(path, weights_only=True), tiny.build(0)

        def swapped(name):
            return {one: two, two: one}.get(name, name)

        names = {id(parameter): name for name, parameter in module.named_parameters()}
        groups = parameter_groups(module, 0.0, False)
        order = [names[id(parameter)] for group in groups for parameter in group["params"]]
        moments = held["optimizer_states"][0]["state"]  # as a module would write them that made both in turn
        held["optimizer_states"][0]["state"] = {n: moments[order.index(swapped(name))] for n, name in enumerate(order)}
        held["state_dict"] = {swapped(name): held["state_dict"][swapped(name)] for name in held["state_dict"]}
        torch.save(held, path)
        fit(tiny, 0, tmp_path / "resumed")
        weights = load_file(tmp_path / "straight" / WEIGHTS)
        for name, tensor in load_file(tmp_path / "resumed" / WEIGHTS).items():
            assert torch.equal(tensor, weights[name]), name

    @pytest.mark.parametrize("changes", ["whole batches", "BERT's optimiser", "ALBERT"])
    def test_bfloat16_has_all_moments_in_full_precision(self, tiny, tmp_path, changes):
        """Under bfloat16 the optimiser's state was lost in checkpoints (deepspeedai/DeepSpeed#7786)."""
        system = tiny.but(**RESUMED[changes] | BFLOAT16)
        with pytest.raises(Interrupted):
            fit(system, 0, tmp_path, stop=stop_after(5))
        held = torch.load(tmp_path / CHECKPOINT, weights_only=True)
        state = held["optimizer_states"][0]["state"]
        assert len(state) == len(list(system.build(0).parameters()))
        for moments in state.values():
            for name in ("exp_avg", "exp_avg_sq"):
                assert moments[name].dtype == torch.float32
                assert not torch.equal(moments[name], moments[name].bfloat16().float()), "they are not rounded"
        assert all(tensor.dtype == torch.float32 for tensor in held["state_dict"].values())

    def test_the_weights_on_disk_are_those_that_were_measured(self, tiny, tmp_path):
        """What was loaded scored otherwise than what was reported (ThilinaRajapakse/simpletransformers#1023)."""
        fitted, module, data = fit(tiny, 0, tmp_path), tiny.build(1), tiny.data_module(0)
        module.load_state_dict(load_weights(tmp_path / WEIGHTS))
        found = measures(module, data.heldout, bf16=False)
        assert found["loss"] == pytest.approx(fitted.metrics["heldout.loss"], rel=1e-6)
        assert found["loss"] != pytest.approx(fitted.curve["heldout.loss"][-2], rel=1e-4), "not of an earlier step"


class TestTokenizers:
    @pytest.mark.parametrize(("kind", "size"), [("wordpiece", 120), ("letter_bpe", 120), ("byte_bpe", 330)])
    def test_decoding_changes_no_word(self, tmp_path, kind, size):
        """Decoded text said "don't" where "do not" was written (huggingface/tokenizers#836)."""
        texts = ["they do not know , and i have not said that it is n't so .", "we do not"]
        path = tmp_path / "tokenizer.json"
        path.write_text(train(Tokenizer(kind=kind, vocab_size=size), (SENTENCES + texts) * 4).to_str())
        lm = Wording(encoder=Encoder(path, kind), start=(), end=None, max_positions=64)
        for text in texts:
            assert lm.decode(lm.encode(text)).replace(" ", "") == text.replace(" ", "")


class TestPositionsAndPadding:
    def test_a_rotation_is_as_exact_far_away(self):
        """In bfloat16 far positions got the angles of others (EleutherAI/gpt-neox#1003)."""
        model_, near, far = encoder("rotary"), Example.of(make_tokens()), Example.of(make_tokens())
        far.inputs.positions = torch.arange(16).expand(4, 16) + 4_000
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            difference = (model_(near).last - model_(far).last).float()
            shuffled = (model_(near).last - model_(near).last.flip(1)).float()
        assert difference.norm() < 0.03 * shuffled.norm()

    def test_the_end_of_a_document_is_predicted_though_it_pads(self, tmp_path):
        """Where padding and the end of a text were one token, no end was learnt (huggingface/transformers#23530)."""
        store = make_store(tmp_path, [[3, 4], [5], [6, 2]])
        vocabulary = dataclasses.replace(store.vocabulary, pad=store.vocabulary.sep)
        store = dataclasses.replace(store, vocabulary=vocabulary)
        form = TextFormat(sequence_length=8, break_mode="none", frame="document_ends")
        tokens = form.arrange(store).batch(np.arange(3))
        assert (~tokens.real).sum() == 1, "the last row is padded with the same token"
        target = LanguageModel(direction="left_to_right").with_targets(Example.of(tokens)).targets["next"]
        assert (target.ids == vocabulary.sep).sum() == 3, "that of each document"
        assert len(target.ids) == tokens.real.sum() - 3, "all but the first of each row"

    def test_a_token_is_no_padding_by_its_number(self, tmp_path):
        """A token of a text with the number of padding was hidden (microsoft/onnxruntime-genai#1682)."""
        lm, other = model(tmp_path, **{"model.init_std": 0.1}), model(tmp_path, **{"model.init_std": 0.1})
        pad, same = lm.encoder.vocabulary.pad, 9  # the other model has these two change places
        places = torch.arange(80)
        places[[pad, same]] = places[[same, pad]]
        with torch.no_grad():
            for table in (other.backbone.embeddings.word.weight, other.heads["vocabulary"].bias):
                table.copy_(table[places])
        rows = [[2, 20, pad, 30, pad, 40], [2, 20, 30], [2, pad, 7, pad, 31, 8, 50, 9]]
        turned = [places[torch.tensor(row)].tolist() for row in rows]
        for nats, again in zip(log_probabilities(lm, rows), log_probabilities(other, turned), strict=True):
            assert nats == pytest.approx(again, abs=1e-5)
        for one, two in zip(generate(lm, rows, new_tokens=6), generate(other, turned, new_tokens=6), strict=True):
            assert places[torch.tensor(one.ids)].tolist() == two.ids

    @pytest.mark.parametrize("positions", POSITIONS)
    def test_masks_of_several_kinds_leave_numbers_in_half_precision(self, positions):
        """The sum of a causal and a padding mask was -inf in bfloat16 (NVIDIA-NeMo/Automodel#2658)."""
        model_ = encoder(positions, direction="left_to_right")
        alone, padded = make_tokens(rows=3), make_tokens(rows=3)
        for name in ("ids", "special", "real"):
            before = torch.full((3, 5), name == "special", dtype=getattr(padded, name).dtype)
            setattr(padded, name, torch.cat([before, getattr(padded, name)], 1))
        padded.tables = {}
        padded.positions = (padded.real.cumsum(1) - 1).clamp(min=0)
        alone.tables = {}
        with torch.autocast("cpu", torch.bfloat16):
            found, wanted = model_(Example.of(padded)).last, model_(Example.of(alone)).last
        assert found.isfinite().all()
        assert (found[:, 5:] - wanted).float().norm() < 0.03 * wanted.float().norm()
        found[:, 5:].sum().backward()
        assert all(weight.grad.isfinite().all() for weight in model_.parameters() if weight.grad is not None)

    @pytest.mark.parametrize("positions", POSITIONS)
    def test_a_longer_text_leaves_no_trace(self, positions):
        """After a long text, short ones had other angles than before it (huggingface/transformers#25306)."""
        model_, short = encoder(positions), Example.of(make_tokens(length=12))
        with torch.no_grad():
            before = model_(short).last
            model_(Example.of(make_tokens(length=32)))
            assert torch.equal(model_(short).last, before)


class TestTrainingAndMeasuring:
    def test_a_last_step_that_diverges_is_noticed(self, tiny, tmp_path):
        """A step that was not finite was reported as a plausible loss (huggingface/trl#6702)."""
        changes = {"optimizer.peak_lr": 1e30, "training.clip_norm": 0.0, "schedule.warmup_fraction": 0.0}
        with pytest.raises(Diverged) as caught:
            fit(tiny.but(**changes | {"training.steps": 1}), 0, tmp_path)
        assert caught.value.step == 1

    def test_a_loss_is_of_the_weights_of_its_step(self, tiny, tmp_path, monkeypatch):
        """Casts of weights were kept across an evaluation and an update (NVIDIA/apex#132)."""
        rates = dict.fromkeys(("model.dropout", "model.attention_dropout", "model.embedding_dropout"), 0.0)
        system, original, losses = tiny.but(**rates | BFLOAT16, **{"evaluation.points": 12}), Pretrain.training_step, []

        def step(self, example, index):
            fresh, loss = system.build(1), original(self, example, index)
            fresh.load_state_dict(self.state_dict())
            terms = fresh.objectives.loss(fresh.heads, fresh.backbone(example), example)
            losses.append((loss.item(), step_loss(terms, example.counts).item()))
            return loss

        monkeypatch.setattr(Pretrain, "training_step", step)
        fit(system, 0, tmp_path)
        assert len(losses) == 12
        assert all(one == two for one, two in losses)

    def test_the_norm_counts_a_tied_weight_once_and_all_weights_together(self):
        """A tied weight counted twice in the norm, so gradients were clipped too far (NVIDIA/Megatron-LM#7228)."""
        net = nn.ModuleDict({"table": nn.Embedding(6, 4), "output": nn.Linear(4, 6), "norm": nn.LayerNorm(4)})
        net["output"].weight = net["table"].weight
        torch.manual_seed(0)
        net["output"](net["norm"](net["table"](torch.tensor([1, 2, 2])))).square().sum().backward()
        parts = (net["table"].weight, net["output"].bias, net["norm"].weight, net["norm"].bias)
        gradients = [part.grad.clone() for part in parts]
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        clip(net, norm / 3)
        for part, gradient in zip(parts, gradients, strict=True):
            assert torch.allclose(part.grad, gradient / 3, rtol=1e-4)
        clip(net, norm)
        assert torch.allclose(parts[0].grad, gradients[0] / 3, rtol=1e-4), "a smaller norm stays"

    def test_a_score_is_of_all_examples(self, tiny, monkeypatch):
        """F1 was the mean of those of batches, and changed with their size (Lightning-AI/torchmetrics#845)."""
        monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
        monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
        settings = FineTuning().but(max_length=16, precision="fp32")
        module, data = (run := FinetuningRun(tiny, "toy", settings, 0, None)).build().eval(), run.data
        with torch.no_grad():
            outputs = module(data.dev.batch(np.arange(len(data.dev))))
            middle = (outputs[:, 1] - outputs[:, 0]).sort().values[11:13].mean()
            module.head.output.bias[0] += middle  # so that half of the answers are 1
            answers = (outputs[:, 1] - outputs[:, 0] > middle).long().numpy()
        wanted = f1_score(data.dev.labels, answers)
        for size in (24, 7, 1):
            data = FinetuningRun(tiny, "toy", settings.but(batch_size=size), 0, None).data
            trainer = pl.Trainer(accelerator="cpu", **QUIET | {"limit_val_batches": None})
            assert trainer.validate(module, data, verbose=False)[0]["dev.f1"] == pytest.approx(wanted)
        parts = [f1_score(data.dev.labels[n : n + 7], answers[n : n + 7]) for n in range(0, 24, 7)]
        assert np.mean(parts) != pytest.approx(wanted, abs=0.01)

    def test_a_batch_that_asks_nothing_changes_no_mean(self, tiny):
        """The loss of a batch without a masked token was NaN (huggingface/transformers#16711)."""
        module, data = tiny.build(0), tiny.data_module(0)
        examples = list(data.heldout)
        nothing = dataclasses.replace(examples[0])
        none = torch.zeros(0, dtype=torch.int64)
        nothing.targets = {"mlm": Target(none, none)}
        found = []
        for shown in (examples, [nothing, *examples]):
            trainer = pl.Trainer(accelerator="cpu", **QUIET | {"limit_val_batches": None})
            trainer.validate(module, Loader(shown), verbose=False)
            found.append(trainer.callback_metrics)
        plain, more = found
        assert math.isfinite(plain["heldout.loss"])
        assert more == plain
