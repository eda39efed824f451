"""Distillation at the task: what a teacher's answers add to the loss, to the parents, and what is refused."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from ablations.schema.run import Run
from lightning_modules.config import ConfigError, flat
from lightning_modules.finetuning.finetune import TEACHER, TaskTeacher
from lightning_modules.finetuning.run import finetune, finetuned
from lightning_modules.model.losses import summed_divergence, summed_divergence_of_logits
from lightning_modules.pretraining import fit
from lightning_modules.tasks import TASKS, expected_work, fitting
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.training.callbacks import CHECKPOINT
from lightning_modules.training.weights import WEIGHTS, load_weights
from tests.toy import toy_task
from tests.toy_shapes import TOYS
from tests.tuning import planned, tunings

TAUGHT = "distillation"
SETTINGS, tuning = tunings(batch_size=16)


STILL = {"dropout": 0.0, "encoder_dropout": 0.0}


@pytest.fixture(autouse=True)
def others(monkeypatch):
    monkeypatch.setitem(TASKS, "others", toy_task("others", labels=("small", "large")))


def taught(**changes):
    return SETTINGS.but(**{f"{TAUGHT}.teacher": {}} | {f"{TAUGHT}.{name}": value for name, value in changes.items()})


def start_of(system, folder):
    fit(system, 0, folder)
    return folder / WEIGHTS


@pytest.fixture
def parents(tiny, tmp_path):
    """A system, its pretrained weights, and those of its fine-tuning by task."""
    start, made = start_of(tiny, tmp_path / "pretrained"), {}

    def teacher(task):
        if task not in made:
            finetune(tuning(tiny, start, task=task), tmp_path / f"teacher-{task}")
            made[task] = tmp_path / f"teacher-{task}" / WEIGHTS
        return made[task]

    return tiny, start, teacher


def module_and_batch(run):
    module = run.build()
    batch = next(iter(run.data.train_dataloader()))
    return module, batch


# --- the loss


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.0])
def test_the_divergence_of_logits_is_that_of_words_and_of_the_released_code(temperature):
    ours, theirs = (torch.randn(9, 5, dtype=torch.float64) for _ in range(2))
    released = F.kl_div(
        (ours / temperature).log_softmax(-1), (theirs / temperature).softmax(-1), reduction="batchmean"
    ) * (temperature**2)
    found = summed_divergence_of_logits(ours, theirs, temperature)
    assert torch.isclose(found.double() / 9, released, rtol=1e-5)
    nothing = torch.zeros(5, dtype=torch.float64)
    same = torch.eye(5, dtype=torch.float64)
    words = summed_divergence(ours, same, nothing, (theirs, same, nothing), temperature)
    assert torch.isclose(found.double(), words, rtol=1e-5)
    moved = summed_divergence_of_logits(ours + 3.0, theirs - 5.0, temperature)
    assert torch.isclose(found, moved, rtol=1e-4)


@pytest.mark.parametrize("task", ["toy", "toy_pairs", "toy_numbers", *TOYS])
def test_a_student_that_equals_its_teacher_has_nothing_to_learn(tiny, task, tmp_path):
    settings = taught(weight=1.0).but(**STILL)
    plain = tuning(tiny, task=task, settings=settings.but(distillation=None))
    module, batch = module_and_batch(plain)
    module = plain.build()
    module.settings = settings
    same = plain.build()
    module.distil_from(TaskTeacher(same.backbone, same.head))
    total, count, weight = module.terms(module.backbone(batch), batch)[TEACHER]
    assert (float(total.detach()), weight) == (0.0, 1.0)
    assert count > 0
    total.backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is None or float(parameter.grad.abs().max()) < 1e-6, name


def test_in_regression_it_is_the_squared_difference_of_answers(tiny):
    module, batch = module_and_batch(tuning(tiny, task="toy_numbers", **STILL))
    other = tuning(tiny, task="toy_numbers", seed=5).build()
    module.eval()
    teacher = TaskTeacher(other.backbone, other.head)
    module.distil_from(teacher)
    ours, theirs = module(batch), teacher(batch)
    for temperature in (1.0, 4.0):
        module.settings = taught(temperature=temperature)
        total, count, _ = module.terms(module.backbone(batch), batch)[TEACHER]
        assert torch.isclose(total, (ours - theirs).square().sum(), rtol=1e-5)
        assert count == len(ours) == 16


def test_padding_has_no_part_in_the_divergence_of_spans(tiny):
    run = tuning(tiny, task="toy_spans")
    sizes, module = run.data.train.sizes[:, 0], run.build()
    batch = run.data.train.batch([sizes.argmin(), sizes.argmax()])
    ours = torch.randn(*batch.inputs.ids.shape, 2)
    theirs = torch.randn_like(ours)
    wrong = (~batch.inputs.real)[..., None] * 50.0
    found = module.head.divergence(ours, theirs, batch, 2.0)
    assert bool((~batch.inputs.real).any())
    assert torch.equal(found, module.head.divergence(ours + wrong, theirs - wrong, batch, 2.0))


# --- a training


def test_the_teacher_is_frozen_and_no_part_of_the_weights(parents, tmp_path):
    tiny, start, teacher = parents
    run = tuning(tiny, start, settings=taught(), teacher=teacher("toy"))
    module = run.build()
    assert module.state_dict().keys() == tuning(tiny, start).build().state_dict().keys()
    (held,) = module._teachers
    module.train()
    assert not any(part.training for part in held.modules())
    assert not any(p.requires_grad for p in held.parameters())
    backbone, head = finetuned(tuning(tiny), teacher("toy"))
    batch = next(iter(run.data.train_dataloader()))
    assert torch.equal(held(batch), head(backbone(batch), batch))


def test_without_weight_it_is_the_plain_fine_tuning_to_the_bit(parents, tmp_path):
    tiny, start, _ = parents
    idle = taught(weight=0.0)
    assert idle.essence() == SETTINGS.essence()
    assert idle.parents == SETTINGS.parents
    made = finetune(tuning(tiny, start, settings=idle), tmp_path / "idle")
    plain = finetune(tuning(tiny, start), tmp_path / "plain")
    assert made.curve == plain.curve
    weights = [load_weights(tmp_path / name / WEIGHTS) for name in ("idle", "plain")]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_a_temperature_changes_the_training(parents, tmp_path):
    tiny, start, teacher = parents
    ended = []
    for temperature in (1.0, 8.0):
        settings = taught(temperature=temperature)
        finetune(tuning(tiny, start, settings=settings, teacher=teacher("toy")), tmp_path / str(temperature))
        ended.append(load_weights(tmp_path / str(temperature) / WEIGHTS))
    assert any(not tensor.equal(ended[1][name]) for name, tensor in ended[0].items())


def test_from_the_teacher_alone_a_student_gives_its_answers(tiny, tmp_path):
    """With all of the loss the teacher's, labels have no part: other labels, the same student."""
    start = start_of(tiny, tmp_path / "pretrained")
    finetune(tuning(tiny, start), tmp_path / "teacher")
    run = tuning(tiny, start, settings=taught(weight=1.0), teacher=tmp_path / "teacher" / WEIGHTS)
    first = finetune(run, tmp_path / "first")
    other = tuning(tiny, start, settings=taught(weight=1.0), teacher=tmp_path / "teacher" / WEIGHTS)
    other.data.train.labels = 1 - other.data.train.labels
    second = finetune(other, tmp_path / "second")
    assert first.metrics["toy.accuracy"] == second.metrics["toy.accuracy"]
    assert first.curve["toy.train_teacher_loss"] == second.curve["toy.train_teacher_loss"]
    assert first.curve["toy.train_loss"] != second.curve["toy.train_loss"]


def test_the_forward_passes_of_the_teacher_are_counted(parents, tmp_path, tiny):
    _, start, teacher = parents
    deeper = {"model.num_layers": 3}
    plain = expected_work(tiny, "toy", SETTINGS)
    same, deep = (expected_work(tiny, "toy", taught(teacher=given)) for given in ({}, deeper))
    assert plain[:2] == same[:2] == deep[:2]
    forward = plain[2] / 3
    assert same[2] - plain[2] == pytest.approx(forward)
    assert deep[2] - plain[2] == pytest.approx(3 * forward, rel=0.05)  # of one layer here
    plain, made = (
        finetune(tuning(tiny, start, settings=settings, teacher=teacher("toy")), tmp_path / name).cost
        for name, settings in (("plain", SETTINGS), ("taught", taught()))
    )
    assert made["flops"] == pytest.approx(plain["flops"] * 4 / 3)
    assert made["parameters"] == plain["parameters"]


# --- texts without labels


def test_of_the_task_itself_they_are_the_examples_beyond_the_labels(tiny):
    few = taught(unlabelled="toy").but(train_examples=10)
    labelled = tuning(tiny, seed=3, train_examples=10).data.train.examples
    run = tuning(tiny, seed=3, settings=few)
    inputs, dev = run.data.train, run.data.dev.examples
    assert inputs.examples.first[:10] == labelled.first
    every = TASKS["toy"].examples("train").first
    rest = [text for text in every if text not in labelled.first and text not in dev.first]
    assert set(inputs.examples.first[10:]) == set(rest)
    assert len(inputs.labels) == 10 < len(inputs)
    assert not set(inputs.examples.first[10:]) & set(dev.first)


def test_texts_of_the_dev_set_are_left_out(tiny, monkeypatch):
    dev = TASKS["toy"].examples("dev")
    rows = TASKS["toy"].rows
    monkeypatch.setitem(TASKS, "leaky", replace(TASKS["toy"], name="leaky", rows=lambda split: rows("dev")))
    assert len(dev) > 0
    inputs = tuning(tiny, settings=taught(unlabelled="leaky")).data.train
    assert len(inputs) == len(inputs.labels)


def test_a_batch_has_targets_for_labels_alone_and_its_loss_is_theirs(tiny):
    run = tuning(tiny, settings=taught(unlabelled="others").but(**STILL))
    plain = tuning(tiny, **STILL)
    inputs, module = run.data.train, plain.build().eval()
    mixed = inputs.batch([3, 70, 5, 80])
    assert mixed.targets["label"].ids.tolist() == inputs.labels[[3, 5]].tolist()
    alone = [module.head.loss(module(one), one) for one in (inputs.batch([n]) for n in (3, 5))]
    assert torch.isclose(module.head.loss(module(mixed), mixed), sum(alone), rtol=1e-5)
    assert module.head.count(mixed) == 2
    none = inputs.batch([70, 80])
    assert float(module.head.loss(module(none), none).detach()) == module.head.count(none) == 0.0


def test_both_orders_of_pairs_without_labels(tiny, monkeypatch):
    alike = toy_task("alike", "pair", ())
    monkeypatch.setitem(TASKS, "alike", replace(alike, shape=Texts((), True, symmetric=True)))
    settings = taught(unlabelled="toy_pairs").but(both_orders=True, **STILL)
    run = tuning(tiny, task="alike", settings=settings)
    module = tuning(tiny, task="alike", settings=settings.but(distillation=None)).build().eval()
    mixed = run.data.train.batch([3, 70, 5])
    alone = [module.head.loss(module(one), one) for one in (run.data.train.batch([n]) for n in (3, 5))]
    assert torch.isclose(module.head.loss(module(mixed), mixed), sum(alone), rtol=1e-4)


def test_documents_of_a_corpus_are_texts(tiny):
    (corpus,) = tiny.data.corpora
    run = tuning(tiny, settings=taught(unlabelled=corpus, unlabelled_examples=2))
    inputs = run.data.train
    assert len(inputs) == len(inputs.labels) + 2
    assert max(inputs.sizes.ravel()) <= SETTINGS.max_length
    steps, positions, _ = expected_work(tiny, "toy", run.settings)
    plain = expected_work(tiny, "toy", SETTINGS)
    assert steps == len(run.data.train_dataloader()) > plain[0]
    assert positions > plain[1]


# --- runs


def test_a_teacher_is_a_parent_with_a_role(tiny):
    plain, run = planned(tiny, SETTINGS), planned(tiny, taught())
    assert run.roles == ("start", "teacher")
    assert run.by_role["teacher"].id == plain.id
    assert run.by_role["start"].id == plain.parents[0]
    assert planned(tiny, taught(weight=0.0)).id == plain.id
    other = planned(tiny, taught(teacher={"seed": 9, "finetuning.epochs": 5}))
    assert other.id != run.id
    assert other.by_role["teacher"].id == planned(tiny, SETTINGS.but(epochs=5), seed=9).id
    assert Run.read(run.to_dict()).id == run.id


def test_spelling_out_more_of_a_teacher_is_no_other_run(tiny):
    spelt = {"model.num_layers": tiny.model.num_layers, "finetuning.epochs": SETTINGS.epochs}
    assert planned(tiny, taught(teacher=spelt)).id == planned(tiny, taught()).id


def test_the_teacher_of_a_student_is_no_student(tiny):
    deep = tiny.but(**{"model.num_layers": 2})
    student = tiny.but(
        **{
            "training.start": {"model.num_layers": 2},
            "training.start_layers": [0],
            "objectives.distillation.teacher": {"model.num_layers": 2},
        }
    )
    run = planned(student, taught(teacher={"model.num_layers": 2}))
    assert run.by_role["teacher"].id == planned(deep, SETTINGS).id
    assert set(run.start.parents) == {run.by_role["teacher"].start.id}


def test_a_quantised_student_is_that_which_a_teacher_taught(tiny):
    run = planned(tiny, taught().but(quantization="int8"))
    assert run.roles == ()
    assert run.start.id == planned(tiny, taught()).id


def test_in_regression_a_temperature_is_no_other_run(tiny):
    runs = [planned(tiny, taught(temperature=t), "toy_numbers") for t in (1.0, 2.0)]
    assert runs[0].id == runs[1].id
    assert len({planned(tiny, taught(temperature=t)).id for t in (1.0, 2.0)}) == 2


def test_the_text_without_labels_is_part_of_the_identity(tiny):
    (corpus,) = tiny.data.corpora
    for source in ("others", corpus):
        run = planned(tiny, taught(unlabelled=source))
        assert run.fingerprints[source]
        assert run.texts[source]
        assert run.id != planned(tiny, taught()).id
        assert source in flat(run.finetuning)["distillation.unlabelled"]


# --- what is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": {"data.tokenizer.vocab_size": 70}}, r"teacher\.data\.tokenizer\.vocab_size: must be as here"),
        ({"teacher": {"task": "toy_pairs"}}, r"teacher\.task: toy_pairs asks in another form than toy"),
        ({"teacher": {"task": "others"}}, r"teacher\.task: others has other answers \(small, large\)"),
        ({"teacher": {"task": "toys"}}, r"teacher\.task: there is no task 'toys'\. Did you mean 'toy'"),
        ({"teacher": {"modell": 8}}, r"distillation\.teacher\.modell: there is no such knob"),
        ({"teacher": {"seed": -1}}, r"distillation\.teacher\.seed: must be a whole number"),
        ({"teacher": {"finetuning.max_length": 8}}, r"teacher\.finetuning\.max_length: must be as here"),
        ({"teacher": {"finetuning.features": {}}}, r"teacher\.finetuning\.features: keep no model"),
        ({"teacher": {"finetuning.distillation.weight": 1.0}}, r"finetuning\.distillation\.weight: is of the student"),
        ({"teacher": {"model.max_positions": 8, "format.sequence_length": 8}}, r"teacher.*8"),
        ({"unlabelled": "toy"}, r"distillation\.unlabelled: toy has only texts with labels"),
        ({"unlabelled": "toy_pairs"}, r"distillation\.unlabelled: toy_pairs has no single texts"),
        ({"unlabelled": "imdb-unlabeled"}, r"unlabelled: there is no task or corpus .* Did you mean 'imdb-unlabelled'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tiny, changes, message):
    with pytest.raises(ConfigError, match=message):
        fitting.check(tiny, "toy", taught(**changes))


def test_shapes_without_whole_texts_have_no_texts_without_labels(tiny):
    for name in TOYS:
        with pytest.raises(ConfigError, match=rf"unlabelled: toy has whole texts, and {name}"):
            fitting.check(tiny, name, taught(unlabelled="toy"))
    with pytest.raises(ConfigError, match=r"unlabelled: imdb-unlabelled is no task, and toy_pairs reads pairs"):
        fitting.check(tiny, "toy_pairs", taught(unlabelled="imdb-unlabelled"))


def test_a_beam_and_frozen_features_are_refused(tiny):
    with pytest.raises(ConfigError, match=r"finetuning\.distillation: compares logits .* toy_spans with span_beam"):
        fitting.check(tiny, "toy_spans", taught().but(span_beam={}))
    with pytest.raises(ConfigError, match=r"Leave out features or distillation"):
        taught().but(features={})
    with pytest.raises(ConfigError, match=r"unlabelled_examples counts texts"):
        taught(unlabelled_examples=3)


def test_missing_and_foreign_weights_are_refused(parents, tmp_path):
    tiny, start, teacher = parents
    with pytest.raises(ConfigError, match=r"finetuning\.distillation\.teacher: needs the weights"):
        finetune(tuning(tiny, start, settings=taught()), tmp_path / "student")
    deep = taught(teacher={"model.num_layers": 3})
    with pytest.raises(Exception, match=r"blocks"):
        finetune(tuning(tiny, start, settings=deep, teacher=teacher("toy")), tmp_path / "student")
    assert not (tmp_path / "student" / CHECKPOINT).exists()
