"""Distillation: the released code's losses, and what they are where nothing is left to learn."""

import pytest
import torch
import torch.nn.functional as F

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError, identity
from lightning_modules.model.losses import summed_divergence
from lightning_modules.pretraining import fit
from lightning_modules.training.callbacks import CHECKPOINT
from lightning_modules.training.weights import WEIGHTS, load_weights
from tests.conftest import make_draws, make_tokens, make_vocabulary

TAUGHT, START, LAYERS = "objectives.distillation", "training.start", "training.start_layers"
DROPOUTS = {"model.dropout": 0.0, "model.attention_dropout": 0.0, "model.embedding_dropout": 0.0}


@pytest.fixture
def deep(tiny):
    return tiny.but(**{"model.num_layers": 3})


def student_of(deep, layers=(0, 2), **changes):
    """A student of a deeper model, which it starts from some layers of."""
    start = {"model.num_layers": 3, "training.steps": 12, "objectives.mlm.weight": 1.0}
    begun = {START: start, LAYERS: list(layers)} if layers else {}
    taught = {f"{TAUGHT}.teacher": start, "objectives.mlm.weight": 2.0}
    return deep.but(**{"model.num_layers": len(layers) or 2, **begun, **taught, **changes})


@pytest.fixture
def trained(deep, tmp_path):
    fit(deep, 0, tmp_path / "teacher")
    return tmp_path / "teacher" / WEIGHTS


# --- the divergence


def _of_logits(seed=0, rows=40, words=17):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((rows, 5), (words, 5), (words,))
    ]


def _naive(ours, theirs, temperature):
    q, p = ((states @ table.T + bias) / temperature for states, table, bias in (ours, theirs))
    of_mean = F.kl_div(q.log_softmax(-1), p.softmax(-1), reduction="batchmean")
    return of_mean * temperature**2 * len(q)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.0])
def test_the_divergence_and_its_gradients_are_those_of_the_released_code(temperature):
    ours, theirs = [part.requires_grad_() for part in _of_logits(0)], _of_logits(1)
    total = summed_divergence(*ours, tuple(theirs), temperature)
    wanted = _naive(ours, theirs, temperature)
    assert torch.isclose(total, wanted, rtol=1e-10)
    for found, right in zip(torch.autograd.grad(3 * total, ours), torch.autograd.grad(3 * wanted, ours), strict=True):
        assert torch.allclose(found, right, rtol=1e-9, atol=1e-12)


# --- a step


def _batch(system, rows=4, padding=5):
    size = system.data.tokenizer.vocab_size
    example = Example.of(make_tokens(rows=rows, length=16, vocab_size=size, padding=padding))
    return system.objectives.mask_inputs(example, make_draws(rows), make_vocabulary(size))


def _terms(module, example):
    encoded = module.backbone(example)
    encoded.teacher = module._teacher()(example)
    return module.objectives.loss(module.heads, encoded, example)


@pytest.mark.parametrize("positions", ["all", "hidden"])
def test_a_student_that_equals_its_teacher_has_nothing_to_learn(deep, positions):
    changes = {**DROPOUTS, "objectives.mlm.weight": 0.0, f"{TAUGHT}.positions": positions}
    system = student_of(deep, (0, 1, 2), **changes)
    module, same = system.build(0), system.build(0)
    module.distil_from(same)
    terms = _terms(module, _batch(system))
    assert terms.keys() == {"kl", "cosine"}
    assert float(terms["kl"][0].detach()) == 0.0
    assert abs(float(terms["cosine"][0].detach())) < 1e-5
    total = sum(total / count for total, count, _ in terms.values())
    total.backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is None or float(parameter.grad.abs().max()) < 1e-6, name


def test_the_terms_of_a_step_are_those_of_the_released_code(deep):
    """Over all real positions, special ones among them, each a mean over these; the teacher has no dropout."""
    system = student_of(deep, **DROPOUTS)
    module, other = system.build(0), deep.but(**{"model.dropout": 0.5}).build(1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    module.distil_from(other)
    example = _batch(system)
    terms = _terms(module, example)
    mask = example.inputs.real
    ours, theirs = module.backbone(example), other.backbone.eval()(example)
    q, p = (
        one.heads["mlm"]["vocabulary"](states.last[mask], states) / 2.0
        for one, states in ((module, ours), (other, theirs))
    )
    divergence = F.kl_div(q.log_softmax(-1), p.softmax(-1), reduction="batchmean") * 2.0**2
    apart = 1 - F.cosine_similarity(ours.last[mask], theirs.last[mask])
    means = {name: total / count * weight for name, (total, count, weight) in terms.items()}
    assert torch.isclose(means["kl"], 5.0 * divergence, rtol=1e-5)
    assert torch.isclose(means["cosine"], apart.mean(), rtol=1e-5)
    assert terms["mlm"][2] == 2.0
    assert not any(parameter.requires_grad for parameter in module._teachers[0].parameters())
    assert module.state_dict().keys() == system.build(0).state_dict().keys()


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({f"{TAUGHT}.distribution": 0.0}, {"mlm", "cosine"}),
        ({f"{TAUGHT}.cosine": 0.0}, {"mlm", "kl"}),
        ({"objectives.mlm.weight": 0.0}, {"kl", "cosine"}),
    ],
)
def test_a_weight_of_0_leaves_its_term_out(deep, changes, left):
    system = student_of(deep, **changes)
    module, same = system.build(0), deep.build(1)
    module.distil_from(same)
    assert _terms(module, _batch(system)).keys() == left


def test_without_weights_a_distillation_is_the_plain_training_to_the_bit(deep, trained, tmp_path):
    none = {f"{TAUGHT}.distribution": 0.0, f"{TAUGHT}.cosine": 0.0}
    idle, plain = student_of(deep, **none), student_of(deep, **{TAUGHT: None})
    assert identity(idle.essence()) == identity(plain.essence())
    assert idle.parents().keys() == {"start"}
    left = [fit(system, 0, tmp_path / str(n), start=trained) for n, system in enumerate((idle, plain))]
    assert left[0].curve == left[1].curve
    weights = [load_weights(tmp_path / str(n) / WEIGHTS) for n in (0, 1)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


# --- a training


def test_the_student_starts_from_the_chosen_layers(deep, trained, tmp_path):
    system = student_of(deep, (0, 2))
    module = system.build(0)
    from lightning_modules.pretraining import _begin
    from lightning_modules.training.execution import ALONE

    _begin(module, system, trained, trained, ALONE)
    own, whole = module.state_dict(), load_weights(trained)
    for name, tensor in own.items():
        source = name.replace("blocks.1.", "blocks.2.")
        assert torch.equal(tensor, whole[source]), name


def test_micro_batches_distil_as_the_whole_batch_does(deep, trained, tmp_path):
    system = student_of(deep, **DROPOUTS)
    whole = fit(system, 0, tmp_path / "whole", start=trained, teacher=trained)
    parts = fit(system.but(**{"training.micro_batch_size": 2}), 0, tmp_path / "parts", start=trained, teacher=trained)
    assert parts.curve["train.kl"] == pytest.approx(whole.curve["train.kl"], rel=1e-4)
    assert parts.metrics["heldout.loss"] == pytest.approx(whole.metrics["heldout.loss"], rel=1e-4)


def test_a_narrow_student_has_a_projection(deep, trained, tmp_path):
    narrow = {
        "model.hidden_size": 8,
        f"{TAUGHT}.projection": 16,
        f"{TAUGHT}.teacher": {"model.num_layers": 3, "model.hidden_size": 16},
    }
    system = student_of(deep, (), **narrow)
    assert system.parameters_by_part()["distillation head"] == 8 * 16 + 16
    assert "train.cosine" in fit(system, 0, tmp_path, teacher=trained).curve


# --- what is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {f"{TAUGHT}.teacher": {"data.tokenizer.vocab_size": 300}},
            r"teacher\.data\.tokenizer\.vocab_size: must be as here",
        ),
        (
            {f"{TAUGHT}.teacher": {"model.hidden_size": 32}},
            r"projection: the teacher's last states are 32 wide, and the .* 16",
        ),
        (
            {f"{TAUGHT}.teacher": {"model.max_positions": 8, "format.sequence_length": 8}},
            r"teacher\.model\.max_positions: is 8",
        ),
        ({f"{TAUGHT}.teacher": {"modell": 8}}, r"distillation\.teacher\.modell: there is no such knob"),
        ({f"{TAUGHT}.teacher": {"seed": -1}}, r"distillation\.teacher\.seed: must be a whole number"),
        ({"objectives.mlm": None, "objectives.lm": {}, START: {}, LAYERS: []}, r"teaches the head for masked words"),
        ({LAYERS: [0]}, r"start_layers: names 1 layers, and model\.num_layers is 2: .* such as \[0, 2\]"),
        ({LAYERS: [0, 3]}, r"start_layers: has 3, and the model in training\.start has the layers 0 to 2"),
        ({START: {}}, r"start_layers chooses layers of another model, and start is empty"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(deep, changes, message):
    with pytest.raises(ConfigError, match=message):
        student_of(deep, **changes)


def test_missing_weights_are_refused_with_their_role(deep, trained, tmp_path):
    with pytest.raises(ConfigError, match=r"distillation\.teacher: needs the weights of a finished pretraining"):
        fit(student_of(deep), 0, tmp_path / "student", start=trained)
    with pytest.raises(ConfigError, match=r"training\.start needs the weights"):
        fit(student_of(deep), 0, tmp_path / "student", teacher=trained)
    assert not (tmp_path / "student" / CHECKPOINT).exists()


def test_what_cannot_teach_is_refused_where_it_is_given(deep):
    module = student_of(deep).build(0)
    reader = deep.but(
        **{"objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"}
    )
    for teacher, message in (
        (torch.nn.Linear(2, 2), "teacher: Linear has no head for masked words"),
        (reader.build(0), "teacher: Pretrain has no head for masked words"),
        (deep.but(**{"data.tokenizer.vocab_size": 300}).build(0), "teacher: has 300 pieces and states of 16. Here"),
        (deep.but(**{"model.hidden_size": 32}).build(0), "pieces and states of 32. Here"),
    ):
        with pytest.raises(ConfigError, match=message):
            module.distil_from(teacher)
    with pytest.raises(ConfigError, match=r"objectives\.distillation: is not in use here"):
        deep.build(0).distil_from(deep.build(1))
