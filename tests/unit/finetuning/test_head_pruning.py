"""Heads removed from a fine-tuned model: the same outputs as masking them, and the order in which they go."""

import copy

import pytest
import torch

from ablations.schema.run import Run
from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.finetuning.head_pruning import Heads, attentions, importances, removals
from lightning_modules.finetuning.run import finetune
from lightning_modules.tasks import expected_work
from lightning_modules.tasks.settings import HeadPruning
from lightning_modules.training.callbacks import Interrupted
from lightning_modules.training.weights import WEIGHTS
from tests.tuning import planned, tunings

SETTINGS, tuning = tunings(epochs=1, batch_size=16)
MODELS = {
    "norm behind": {"model.num_layers": 2, "model.num_heads": 4},
    "norm before, rotary": {
        "model.num_layers": 2, "model.num_heads": 4, "model.norm": "pre", "model.positions": "rotary",
    },
    "narrow keys": {"model.num_layers": 2, "model.num_heads": 4, "model.key_size": 3},
    "no biases": {"model.num_layers": 2, "model.num_heads": 4, "model.attention_biases": False},
    "shared": {"model.num_layers": 3, "model.num_heads": 4, "model.sharing": "all"},
    "two stacks": {"model.num_layers": 4, "model.num_heads": 2, "model.direction": "two_way"},
    "one-way": {
        "model.num_layers": 2, "model.num_heads": 4, "model.direction": "left_to_right", "objectives.mlm": None,
        "objectives.lm.direction": "left_to_right",
    },
}  # fmt: skip


def removal(share, order="importance"):
    return {"head_pruning.share": share, "head_pruning.order": order}


@pytest.fixture
def tuned(tiny, tmp_path):
    """A system, and the weights of its fine-tuning."""

    def made(task="toy", **changes):
        system = tiny.but(**{"model.num_layers": 2, "model.num_heads": 4} | changes)
        finetune(tuning(system, task=task, from_scratch=True), tmp_path / "tuned")
        return system, tmp_path / "tuned" / WEIGHTS

    return made


def without(backbone, numbers):
    """The backbone with what these heads read set to zero, at full size."""
    masked = copy.deepcopy(backbone)
    first = 0
    for layer in attentions(masked):
        zero = [h for h in range(layer.num_heads) if first + h in numbers]
        first += layer.num_heads

        def mask(module, given, zero=zero, layer=layer):
            (states,) = given
            states = states.clone().unflatten(-1, (layer.num_heads, layer.head_size))
            states[..., zero, :] = 0.0
            return (states.flatten(-2),)

        layer.output.register_forward_pre_hook(mask)
    return masked


def drawn(backbone):
    """A backbone whose biases and norms are as random as its matrices."""
    generator = torch.Generator().manual_seed(1)
    for parameter in backbone.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 4
    return backbone.double().eval()


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("numbers", [{1, 6}, {0, 1, 2, 3}, {4, 5, 6}, set(range(8))], ids=str)
def test_removing_heads_equals_masking_them_with_fewer_parameters(tiny, changes, numbers):
    run = tuning(tiny.but(**changes))
    backbone = drawn(run.build().backbone)
    heads = Heads.of(backbone)
    assert heads.count == run.system.model.total_heads
    numbers = {number for number in numbers if number < heads.count}
    example = next(iter(run.data.train_dataloader()))
    masked, before = without(backbone, numbers), sum(p.numel() for p in backbone.parameters())
    heads.remove(numbers)
    left, expected = backbone(example).last, masked(example).last
    torch.testing.assert_close(left, expected, rtol=0, atol=1e-10)
    width, biases, layer = run.system.model.hidden_size, run.system.model.attention_biases, attentions(backbone)[0]
    keys, values = layer.key_size, layer.head_size
    each = 2 * width * (keys + values) + (2 * keys + values) * biases
    assert before - sum(p.numel() for p in backbone.parameters()) == each * len(numbers)
    assert sorted(n for layer in heads.left for n in layer) == sorted(
        set(range(run.system.model.total_heads)) - numbers
    )


def test_heads_that_only_some_positions_ask_are_removed_likewise(tiny):
    run = tuning(tiny.but(**MODELS["norm behind"]))
    backbone = drawn(run.build().backbone)
    example = next(iter(run.data.train_dataloader()))
    rows, length = example.inputs.ids.shape
    masked = without(backbone, {4, 7})
    Heads.of(backbone).remove({4, 7})
    example.output_positions = torch.zeros(rows, 1, dtype=torch.long) + torch.arange(rows)[:, None] * length
    assert torch.allclose(backbone(example).last[:, 0], masked(example).last[:, 0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["norm behind", "shared"])
def test_the_importance_is_the_derivative_by_a_factor_on_the_head(tiny, name):
    run = tuning(tiny.but(**MODELS[name]))
    module = run.build().double().eval()
    backbone, head = drawn(module.backbone), drawn(module.head)
    batches = [run.data.train.batch(numbers) for numbers in run.data.train_dataloader().epoch(0)]
    found = importances(backbone, head, batches)
    layers = attentions(backbone)
    for layer, of_layer in zip(layers, found, strict=True):
        expected = torch.zeros(layer.num_heads, dtype=torch.float64)
        for number in range(layer.num_heads):
            for item in range(len(run.data.train)):
                losses = []
                for factor in (1 + 1e-3, 1 - 1e-3):
                    scaled = _scaled(layer, number, factor)
                    example = run.data.train.batch([item])
                    losses.append(float(head.loss(head(backbone(example), example), example).detach()))
                    scaled.remove()
                expected[number] += abs(losses[0] - losses[1]) / 2e-3
        torch.testing.assert_close(of_layer, expected / expected.norm(), rtol=0.02, atol=2e-3)  # losses are fp32
        assert float(of_layer.norm()) == pytest.approx(1)


def _scaled(layer, number, factor):
    def scale(module, given):
        states = given[0].clone().unflatten(-1, (layer.num_heads, layer.head_size))
        states[..., number, :] *= factor
        return (states.flatten(-2),)

    return layer.output.register_forward_pre_hook(scale)


def test_the_least_important_head_that_is_left_goes_first(tiny):
    heads = Heads.of(tuning(tiny.but(**MODELS["norm behind"])).build().backbone)

    def importance():
        return [torch.tensor([3.0 * number % 8 for number in layer]) for layer in heads.left]

    rounds = list(removals(heads, HeadPruning(share=0.25), 0, importance))
    assert (rounds, heads.left) == ([[0], [3]], [[1, 2], [4, 5, 6, 7]])


def test_a_round_removes_a_tenth_and_the_last_one_what_is_left(tiny):
    run = tuning(tiny.but(**{"model.num_layers": 5, "model.num_heads": 4}))
    heads = Heads.of(run.build().backbone)
    sizes = [len(round_) for round_ in removals(heads, HeadPruning(share=0.55, order="random"), 0, list)]
    assert sizes == [2, 2, 2, 2, 2, 1]
    assert heads.count == 9


def test_random_orders_are_of_the_seed_and_nest(tiny):
    run = tuning(tiny.but(**MODELS["norm behind"]))

    def gone(share, seed):
        heads = Heads.of(run.build().backbone)
        return [n for round_ in removals(heads, HeadPruning(share=share, order="random"), seed, list) for n in round_]

    assert gone(0.75, 0)[:2] == gone(0.25, 0)
    assert sorted(gone(1.0, 0)) == list(range(8))
    assert gone(1.0, 0) != gone(1.0, 1)


@pytest.mark.parametrize("task", ["toy", "toy_pairs"])
def test_the_curve_begins_at_the_whole_model_and_ends_at_the_score(tuned, tmp_path, task):
    system, weights = tuned(task)
    run = tuning(system, weights, task, **removal(0.5))
    fitted = finetune(run, tmp_path / "pruned")
    assert fitted.curve["step"] == [0, 1, 2, 3, 4]
    assert fitted.curve[f"{task}.heads"] == [8, 7, 6, 5, 4]
    whole = finetune(tuning(system, task=task, from_scratch=True), tmp_path / "again")
    for metric in ("accuracy", "f1", "dev_loss"):
        assert fitted.curve[f"{task}.{metric}"][0] == pytest.approx(whole.metrics[f"{task}.{metric}"], rel=1e-6)
        assert fitted.curve[f"{task}.{metric}"][-1] == fitted.metrics[f"{task}.{metric}"]
    assert sum(fitted.layers["heads"]) == 4
    assert fitted.cost["parameters"] < whole.cost["parameters"]
    assert fitted.cost["tokens"] == 4 * whole.cost["tokens"]
    assert (0, fitted.cost["tokens"]) == pytest.approx(expected_work(system, task, run.settings)[:2], rel=0.5)
    assert fitted.examples.keys() == whole.examples.keys()


@pytest.mark.parametrize("order", ["importance", "random"])
def test_removals_of_several_shares_cost_one_curve_and_have_the_numbers_of_each_alone(
    tuned, tmp_path, monkeypatch, order
):
    system, weights = tuned()
    passes, shares = [], (0.25, 0.5, 0.75, 1.0)
    monkeypatch.setattr(
        "lightning_modules.finetuning.run.importances", lambda *given: passes.append(0) or importances(*given)
    )

    def removed(share, cache):
        monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / cache))
        fitted = finetune(tuning(system, weights, **removal(share, order)), tmp_path / f"{cache} {share}")
        file = (tmp_path / f"{cache} {share}" / WEIGHTS).read_bytes()
        cost = {name: value for name, value in fitted.cost.items() if "second" not in name}
        return fitted.metrics, fitted.curve, fitted.examples, cost, file

    together = [removed(share, "shared") for share in shares]
    spent = len(passes)
    assert together == [removed(share, f"alone {share}") for share in shares]
    assert (spent, len(passes) - spent) == ((8, 20) if order == "importance" else (0, 0)), "of 8 heads"


def test_an_interrupted_removal_made_again_is_the_same(tuned, tmp_path):
    system, weights = tuned()
    run = tuning(system, weights, **removal(0.5))
    stops = iter([False, False, True])
    with pytest.raises(Interrupted):
        finetune(run, tmp_path / "pruned", stop=lambda: next(stops))
    resumed, at_once = finetune(run, tmp_path / "pruned"), finetune(run, tmp_path / "at once")
    assert (resumed.metrics, resumed.curve, resumed.examples) == (at_once.metrics, at_once.curve, at_once.examples)
    assert (tmp_path / "pruned" / WEIGHTS).read_bytes() == (tmp_path / "at once" / WEIGHTS).read_bytes()


def test_the_model_that_heads_are_removed_from_is_the_fine_tuning_without_it(tiny):
    system = tiny.but(**MODELS["norm behind"])
    whole, run = (planned(system, settings) for settings in (SETTINGS, SETTINGS.but(**removal(0.5))))
    assert run.start == whole
    assert run.parents == (whole.id,)
    assert Run.read(run.to_dict()).id == run.id
    others = [SETTINGS.but(**removal(0.25)), SETTINGS.but(**removal(0.5, "random"))]
    assert len({run.id, whole.id, *(planned(system, one).id for one in others)}) == 4
    scratch = planned(system, SETTINGS.but(**removal(0.5), from_scratch=True))
    assert scratch.start.finetuning == SETTINGS.but(from_scratch=True)
    assert scratch.start.by_role == {}


@pytest.mark.parametrize(
    ("model", "changes", "named"),
    [
        (
            {
                "model.kind": "lstm", "model.num_layers": 2, "model.hidden_size": 16, "objectives.mlm": None,
                "model.direction": "left_to_right", "objectives.lm.direction": "left_to_right",
            },
            removal(0.5),
            ["finetuning.head_pruning", "model.kind transformer"],
        ),
        ({"model.positions": "relative"}, removal(0.5), ["finetuning.head_pruning", "relative", "rotary"]),
        ({"model.num_layers": 2, "model.num_heads": 2}, removal(0.1), ["finetuning.head_pruning.share", "0.25"]),
    ],
)  # fmt: skip
def test_what_has_no_heads_of_its_own_is_refused_by_name(tiny, model, changes, named):
    with pytest.raises(ConfigError) as error:
        tuning(tiny.but(**model), **changes).networks()
    assert all(name in str(error.value) for name in named)


def test_an_example_of_several_rows_has_one_importance(tiny):
    run = tuning(tiny.but(**MODELS["norm behind"]))
    module = run.build().eval()
    one = run.data.train.batch([0])
    twice: Example = run.data.train.batch([0, 0])
    single = importances(module.backbone, module.head, [one])
    for a, b in zip(single, importances(module.backbone, module.head, [twice], rows=2), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
