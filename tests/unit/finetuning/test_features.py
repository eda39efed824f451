"""Feature-based use of an encoder: what is read, what is kept on disk, what is trained, what it is called and costs."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from ablations.schema.run import Run
from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.finetuning import features
from lightning_modules.finetuning.features import FrozenFeatures, Kept
from lightning_modules.finetuning.run import finetune
from lightning_modules.model.layers import ScalarMix
from lightning_modules.model.recurrent import BiLSTM
from lightning_modules.tasks import TASKS, Features, FineTuning, expected_work, pins
from lightning_modules.tasks.loader import InOrder
from tests.conftest import make_tokens
from tests.toy import COUNTS, toy_task
from tests.tuning import planned, tunings

CHOICES = {
    "embeddings": [0], "second_to_last": [4], "last": [5], "weighted_sum_last_four": [2, 3, 4, 5],
    "concat_last_four": [2, 3, 4, 5], "weighted_sum_all": [1, 2, 3, 4, 5],
}  # fmt: skip
SETTINGS, tuning = tunings(
    **{"features.layers": "weighted_sum_all", "features.bilstm_layers": 1, "features.bilstm_size": 6}
)


@pytest.fixture
def deep(tiny, monkeypatch, tmp_path):
    """A tiny system of five layers and a task by the name ``toy``, with a cache of features of their own."""
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    monkeypatch.setattr(features, "cache", lambda: tmp_path)
    return tiny.but(**{"model.num_layers": 5})


@pytest.fixture
def start(deep, tmp_path):
    """The weights of an untrained system, and its module."""
    module = deep.build(7)
    save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors", module


def frozen(system, **settings):
    torch.manual_seed(0)
    return FrozenFeatures(system.model.build(50), system.model, Features(**{"bilstm_layers": 0, **settings}))


# --- layers


def test_a_scalar_mix_is_a_scaled_weighted_mean():
    layers = torch.randn(2, 3, 4, 5)
    mix = ScalarMix(4)
    assert torch.allclose(mix(layers), layers.mean(2), atol=1e-6)  # equal weights at the start
    with torch.no_grad():
        mix.weights.copy_(torch.log(torch.tensor([1.0, 2.0, 3.0, 4.0])))
        mix.scale.fill_(-0.5)
    by_hand = sum(-0.5 * (k + 1) / 10 * layers[:, :, k] for k in range(4))
    assert torch.allclose(mix(layers), by_hand, atol=1e-6)
    mix(layers).sum().backward()
    assert mix.weights.grad.abs().sum() > 0
    assert mix.scale.grad.abs() > 0


@pytest.mark.parametrize("layers", [1, 2])
def test_a_bilstm_reads_both_directions_and_no_padding(layers):
    torch.manual_seed(0)
    network, real = BiLSTM(3, 4, layers), torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    x = torch.randn(2, 5, 3)
    states = network(x, real)
    assert states.shape == (2, 5, 8)
    assert not states[1, 2:].any()
    assert torch.allclose(network(x[1:, :2], real[1:, :2])[0], states[1, :2], atol=1e-6)
    noisy = x.clone()
    noisy[1, 2:] = 99.0
    assert torch.equal(network(noisy, real), states)
    later, earlier = x.clone(), x.clone()
    later[0, 4] += 1.0
    earlier[0, 0] += 1.0
    assert not torch.allclose(network(later, real)[0, 0], states[0, 0])
    assert not torch.allclose(network(earlier, real)[0, 4], states[0, 4])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(network(x, real), states)


# --- what is read


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("choice", CHOICES)
def test_each_choice_is_what_a_hand_takes_from_the_layers(deep, choice, norm):
    system = deep.but(**{"model.norm": norm})
    module, example = frozen(system, layers=choice).train(), Example.of(make_tokens(padding=3))
    with torch.no_grad():
        encoded = module.encoder(example)
    layers = [*encoded.layers[:5], encoded.last]
    taken = [layers[number] for number in CHOICES[choice]]
    expected = torch.cat(taken, -1) if "concat" in choice else sum(taken) / len(taken)
    found = module(example)
    assert found.last.shape[-1] == module.hidden_size == (64 if "concat" in choice else 16)
    assert torch.allclose(found.last, expected, atol=2e-3)  # kept in half precision
    assert torch.equal(found.last, module(example).last)  # no dropout, though it is in training mode
    assert module.training
    assert not module.encoder.training


def test_an_encoder_with_too_few_layers_is_refused(tiny):
    with pytest.raises(ConfigError, match=r"features.layers weighted_sum_last_four takes 4 layers. The encoder is 1"):
        tuning(tiny, task="sst2", **{"features.layers": "weighted_sum_last_four"}).networks()


# --- what is kept


@pytest.mark.parametrize("choice", ["last", "concat_last_four"])
def test_what_is_kept_is_what_is_computed_on_the_fly(deep, start, choice):
    run = tuning(deep, start[0], **{"features.layers": choice})
    module, data = run.build().eval(), run.data
    plain = [
        tuning(deep, start[0], features=None).data.train_dataloader(),
        data.train_dataloader(),
    ]
    for without, having in zip(*plain, strict=True):
        assert torch.equal(without.inputs.ids, having.inputs.ids)
        assert without.features is None
        computed = module.backbone.features(without)
        real = without.inputs.real
        assert having.features.dtype == torch.float16
        assert torch.allclose(having.features[real].float(), computed[real].float(), atol=2e-3)
        assert not having.features[~real].any()
        assert torch.allclose(module(having), module(without), atol=2e-3)


def test_features_are_computed_once_and_anew_for_other_weights_layers_or_examples(deep, start, tmp_path, monkeypatch):
    written, write = [], Kept._write
    monkeypatch.setattr(Kept, "_write", lambda self, *rest: (written.append(1), write(self, *rest)))

    def made(seed=0, system=deep, weights=start[0], **changes):
        written.clear()
        tuning(system, weights, seed=seed, **changes).data.setup("fit")
        return len(written)

    assert made() == 2  # train and dev
    assert made() == made(seed=1) == made(epochs=1, dropout=0.3) == 0
    assert made(**{"features.bilstm_size": 3}) == made(precision="bf16") == 0
    assert made(**{"features.layers": "concat_last_four"}) == 2
    assert made(**{"features.layers": "weighted_sum_last_four"}) == 0  # the same four layers
    assert made(train_examples=8) == 1  # the dev examples are those
    assert made(max_length=8) > 0
    assert made(system=deep.but(**{"model.num_heads": 4})) == 2  # the same weights used otherwise
    assert made(weights=None) == 2
    assert {path.suffix for path in (tmp_path / "features").iterdir()} == {".f16", ".lock", ".sha256"}


# --- what is trained


def test_only_mixture_bilstm_and_head_are_trained(deep, start, tmp_path):
    path, pretrained = start
    run = tuning(deep, path)
    module = run.build()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert {".".join(name.split(".")[:2]) for name in before} == {
        "backbone.mix", "backbone.bilstm", "head.pooler", "head.output",
    }  # fmt: skip
    example = next(iter(run.data.train_dataloader()))
    for batch in (example, replace(example, features=None)):
        module.zero_grad()
        module.training_step(batch, 0).backward()
        still = {name for name, p in module.named_parameters() if p.grad is None or not p.grad.any()}
        # the first position is where the one direction starts, from no state
        assert still == {"backbone.bilstm.lstm.weight_hh_l0"}
        assert all(p.grad is None and not p.requires_grad for p in module.backbone.encoder.parameters())
    optimizer = module.configure_optimizers()["optimizer"]  # held: a schedule wraps its step
    optimizer.step()
    assert not any(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    finetune(run, tmp_path / "run")
    encoder = module.backbone.encoder.state_dict()
    for name, tensor in pretrained.backbone.state_dict().items():
        assert torch.equal(encoder[name], tensor), name


def test_a_training_learns_repeats_and_says_what_it_cost(deep, tmp_path):
    """From random weights: features of an untrained encoder tell words apart."""
    settings = SETTINGS.but(epochs=8, features=Features(layers="embeddings", bilstm_layers=1, bilstm_size=6).to_dict())
    one, again = (finetune(tuning(deep, settings=settings), tmp_path / name) for name in ("one", "again"))
    assert one.metrics == again.metrics
    assert one.metrics["toy.accuracy"] > 0.7
    lstm = 2 * 4 * (6 * (16 + 6) + 2 * 6)
    assert one.cost["parameters"] == lstm + (12 * 12 + 12) + (12 * 2 + 2)
    lengths = tuning(deep, settings=settings).data.train.sizes[:, 0]
    forward = sum(deep.model.flops_per_sequence(int(n)) for n in lengths)
    recurrent = sum(n * 2 * 2 * 4 * 6 * (16 + 6) for n in lengths.tolist())
    least = forward + 8 * 3 * recurrent
    assert least < one.cost["flops"] < 1.5 * least
    assert len(lengths) == COUNTS["train"]


# --- identities, parents and plans


def runs(system, **changes):
    return planned(system, FineTuning().but(**changes))


def test_unset_knobs_leave_identities_alone(deep):
    usual = runs(deep)
    assert not {"features", "from_scratch"} & set(usual.essence()["finetuning"])
    assert runs(deep, features=None, from_scratch=False).id == usual.id
    on = runs(deep, **{"features.layers": "last"})
    assert len({usual.id, on.id, runs(deep, from_scratch=True).id, runs(deep, **{"features.bilstm_size": 9}).id}) == 4
    assert on.parents == usual.parents
    # what does nothing makes no difference
    assert runs(deep, **{"features.layers": "last", "encoder_dropout": 0.0}).id == on.id
    assert runs(deep, encoder_dropout=0.0).id != usual.id
    none = {"features.bilstm_layers": 0}
    assert runs(deep, **none, **{"features.bilstm_size": 9}).id == runs(deep, **none).id != on.id
    assert Run.read(on.to_dict()).id == on.id


def test_from_scratch_has_no_parent_and_is_a_tuning_without_weights(deep, start, tmp_path):
    scratch = runs(deep, from_scratch=True)
    assert scratch.start is None
    assert scratch.parents == ()
    assert runs(deep).parents == (runs(deep).start.id,)
    assert scratch.of_generation(scratch.numerics).id == scratch.id
    warm = deep.but(**{"training.warm_start": [2]})
    assert runs(warm, from_scratch=True).start is None
    plain = SETTINGS.but(features=None, epochs=1)
    one = finetune(tuning(deep, settings=plain.but(from_scratch=True)), tmp_path / "one")
    other = finetune(tuning(deep, settings=plain), tmp_path / "other")
    assert (one.metrics, one.curve) == (other.metrics, other.curve)
    with pytest.raises(ConfigError, match=r"from_scratch starts from random weights, but .*w.safetensors is given"):
        tuning(deep, start[0], settings=plain.but(from_scratch=True)).build()


def test_plans_count_the_frozen_encoder_once(deep, monkeypatch):
    monkeypatch.setattr("lightning_modules.tasks.work.expected", lambda name: pins.measured(TASKS[name]))
    asked = SETTINGS.but(epochs=4)
    steps, tokens, flops = expected_work(deep, "toy", asked)
    same = expected_work(deep, "toy", asked.but(features=None))
    assert (steps, tokens) == same[:2]
    length = tokens / (4 * COUNTS["train"])
    recurrent = 3 * tokens * 2 * 2 * 4 * 6 * (16 + 6)
    assert flops == pytest.approx(same[2] / 12 + recurrent)
    assert length == round(length)
    two = Features(layers="concat_last_four", bilstm_layers=2, bilstm_size=5)
    assert two.flops_per_sequence(16, 3) == 3 * 2 * 2 * 4 * 5 * ((64 + 5) + (10 + 5))


# --- ELMo as features


def test_a_normalised_mix_is_allennlps_over_all_positions_of_the_batch():
    layers, real = 3 * torch.randn(2, 4, 2, 5) + 1, torch.tensor([[True] * 4, [True, True, False, False]])
    mix, kept = ScalarMix(2, norm=True), layers[real]  # [6 k d]
    mean, spread = kept.mean((0, 2)), kept.std((0, 2), correction=0)
    expected = ((kept - mean[:, None]) / spread[:, None]).mean(1)
    assert torch.allclose(mix(layers, real)[real], expected, atol=1e-5)
    noisy = layers.clone()
    noisy[1, 2:] = 99.0
    assert torch.equal(mix(noisy, real)[real], mix(layers, real)[real])


ELMO_FEATURES = {
    "layers": "weighted_sum_with_embeddings", "bilstm_layers": 1, "bilstm_size": 6,
    "vectors": {"tokens": 2000, "epochs": 1},
}  # fmt: skip


@pytest.mark.parametrize(("place", "read", "above"), [("input", 32, 0), ("output", 16, 16), ("both", 32, 16)])
def test_a_mixture_is_read_at_the_place_of_its_name(deep, place, read, above):
    settings = SETTINGS.but(features={**ELMO_FEATURES, "place": place})
    run = tuning(deep, settings=settings)
    module, example = run.build().eval(), next(iter(run.data.train_dataloader()))
    encoded = module.backbone(example)
    assert encoded.layers[0].shape[-1] == read
    assert encoded.last.shape[-1] == module.backbone.hidden_size == 12 + above
    mixed = example.features.float().mean(2)
    assert torch.allclose(encoded.layers[0][..., -16:], module.backbone.vectors[example.inputs.ids])
    if place != "output":
        assert torch.allclose(encoded.layers[0][..., :16], mixed, atol=1e-5)
    if above:
        assert torch.allclose(encoded.last[..., 12:], mixed, atol=1e-5)
    names = {name for name, _ in module.backbone.named_parameters() if name.startswith("mix")}
    assert {name.split(".")[0] for name in names} == {"input": {"mix"}, "output": {"mix_above"}}.get(
        place, {"mix", "mix_above"}
    )


def test_without_layers_the_network_reads_static_vectors_alone(deep, tmp_path):
    settings = SETTINGS.but(features={**ELMO_FEATURES, "layers": "none"})
    done = finetune(tuning(deep, settings=settings), tmp_path / "none")
    assert "toy.mix_0" not in done.metrics


def test_a_large_penalty_keeps_the_layers_equal_and_a_small_one_does_not(deep, tmp_path):
    found = {}
    for decay in (0.0, 100.0):
        settings = SETTINGS.but(epochs=4, features={**ELMO_FEATURES, "mix_decay": decay})
        metrics = finetune(tuning(deep, settings=settings), tmp_path / str(decay)).metrics
        found[decay] = [metrics[f"toy.mix_{layer}"] for layer in range(6)]
        assert sum(found[decay]) == pytest.approx(1.0)
    kept, free = (max(shares) - min(shares) for shares in (found[100.0], found[0.0]))
    assert kept < free / 5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers": "none", "vectors": None}, "layers none reads static vectors alone"),
        ({"place": "both", "bilstm_layers": 0}, "place both is at the output of a BiLSTM"),
        ({"place": "output", "vectors": None}, "with place output the BiLSTM reads static vectors alone"),
    ],
)
def test_features_that_read_nothing_are_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        FineTuning().but(features={**ELMO_FEATURES, **changes})


def test_states_are_carried_by_an_lstm_alone(deep):
    settings = SETTINGS.but(features={**ELMO_FEATURES, "carried": True})
    with pytest.raises(ConfigError, match=r"features.carried: carries the states of an LSTM from text to text"):
        tuning(deep, settings=settings).networks()


def test_carried_states_make_a_text_another_in_another_place(deep, monkeypatch):
    """The first batch is as it is without; later ones differ, and are the same each time."""
    own = {"model.kind": "lstm", "model.num_layers": 4, "model.hidden_size": 8, "model.embedding_size": 8,
           "model.direction": "two_way"}  # fmt: skip
    system, found = deep.but(**own), {}
    monkeypatch.setattr(features, "_BATCH", 8)
    for carried in (False, True):
        settings = SETTINGS.but(features={**ELMO_FEATURES, "carried": carried})
        kept = tuning(system, settings=settings).data.kept_train
        order = InOrder(kept.inputs, 8).batches
        found[carried] = [kept.batch(numbers).features for numbers in (order[0], order[1])]
    assert torch.allclose(found[False][0], found[True][0], atol=2e-3)
    assert not torch.allclose(found[False][1], found[True][1], atol=2e-2)
