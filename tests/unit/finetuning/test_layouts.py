"""Fine-tuning with rows [start] a [delimiter] b [extract], in one order of the texts or in both."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_modules.finetuning.run import finetune, finetuned
from lightning_modules.model.embeddings import FIRST_NEW
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.shapes.choice import ChoiceExamples
from lightning_modules.tasks.shapes.texts import TextExamples
from lightning_modules.training.weights import WEIGHTS, keep_weights, load_weights
from tests.toy import toy_task
from tests.toy_shapes import last_states
from tests.tuning import accuracy, planned, tunings

EXTRACT = FIRST_NEW + 2
SETTINGS, tuning = tunings(layout="extract", pooler=False)
WAYS = ("left_to_right", "both")


@pytest.fixture(autouse=True)
def alike(monkeypatch):
    """The task of pairs with texts that may change places."""
    task = toy_task("toy_alike", "pair")
    monkeypatch.setitem(TASKS, "toy_alike", replace(task, shape=replace(task.shape, symmetric=True)))


def reading(tiny, direction="left_to_right"):
    return tiny.but(**{"model.direction": direction, "model.num_layers": 2})


def prepared(tiny, task, direction="left_to_right", weights=None, **changes):
    return tuning(reading(tiny, direction), weights, task=task, **changes)


@pytest.mark.parametrize("direction", WAYS)
@pytest.mark.parametrize("task", ["toy", "toy_pairs", "toy_options"])
def test_the_state_of_a_text_is_that_at_extract(tiny, task, direction):
    """Wherever padding puts it in a batch, and nothing else of the row is read."""
    tuning = prepared(tiny, task, direction)
    _, head = tuning.networks()
    example, head = tuning.data.train.batch(np.arange(12)), head.eval()
    ids, states = example.inputs.ids, torch.randn(*example.inputs.ids.shape, 16)
    assert example.inputs.real.sum(1).unique().numel() > 1
    at_extract = states[ids == EXTRACT]
    assert len(at_extract) == len(ids)
    expected = at_extract @ head.output.weight.T + (0 if head.output.bias is None else head.output.bias)
    outputs = head(last_states(states), example)
    assert torch.allclose(outputs, expected.view_as(outputs), atol=1e-6)


def test_only_the_new_rows_differ_from_the_usual_start(tiny, tmp_path):
    system = reading(tiny)
    keep_weights(system.build(seed=5), tmp_path)
    usual, ours = (
        prepared(tiny, "toy_pairs", weights=tmp_path / WEIGHTS, layout=layout).build().state_dict()
        for layout in ("cls_sep", "extract")
    )
    assert ours.keys() - usual.keys() == {"backbone.embeddings.word.new"}
    assert all(ours[name].equal(tensor) for name, tensor in usual.items())
    again = prepared(tiny, "toy_pairs", weights=tmp_path / WEIGHTS).build().state_dict()
    assert again["backbone.embeddings.word.new"].equal(ours["backbone.embeddings.word.new"])


@pytest.mark.parametrize("task", ["toy", "toy_alike", "toy_options"])
def test_it_trains_and_opens_again(tiny, task, tmp_path):
    tuning = prepared(tiny, task, epochs=8, both_orders=True)
    fitted = finetune(tuning, tmp_path)
    assert fitted.metrics[f"{task}.accuracy"] > fitted.metrics[f"{task}.accuracy.majority"]
    fresh = prepared(tiny, task, both_orders=True).networks()[0]
    assert not finetuned(tuning, tmp_path / WEIGHTS)[0].embeddings.word.new.equal(fresh.embeddings.word.new)
    assert accuracy(tuning, tmp_path) == pytest.approx(fitted.metrics[f"{task}.accuracy"])


def test_a_second_task_goes_on_with_the_rows_of_the_first(tiny, tmp_path):
    finetune(prepared(tiny, "toy_pairs"), tmp_path)
    after = prepared(tiny, "toy", weights=tmp_path / WEIGHTS).build()
    kept = load_weights(tmp_path / WEIGHTS)["backbone.embeddings.word.new"]
    assert after.backbone.embeddings.word.new.equal(kept)


def swapped(examples):
    return TextExamples(examples.second, examples.first, examples.labels)


class TestBothOrders:
    @pytest.mark.parametrize("direction", WAYS)
    @pytest.mark.parametrize("pooler", [False, True])
    def test_an_answer_is_the_same_for_both_orders_of_its_texts(self, tiny, direction, pooler):
        """To the bit, long texts that are cut included; in one order it is not."""
        for both in (True, False):
            tuning = prepared(tiny, "toy_alike", direction, both_orders=both, pooler=pooler, max_length=8)
            module, shape, data = tuning.build().eval(), TASKS["toy_alike"].shape, tuning.data
            examples = data.train.examples
            answers = []
            for given in (examples, swapped(examples)):
                pieces = Pieces.of(given.texts(), data.encoder)
                inputs = shape.inputs(given, pieces, data.encoder.vocabulary, tuning.settings)
                answers.append(module(inputs.batch(np.arange(24))))
            assert torch.equal(*answers) == both

    def test_the_vectors_of_both_rows_are_added(self, tiny):
        tuning = prepared(tiny, "toy_alike", both_orders=True)
        _, head = tuning.networks()
        example = tuning.data.train.batch(np.arange(5))
        states = torch.randn(*example.inputs.ids.shape, 16)
        each = states[example.inputs.ids == EXTRACT].view(5, 2, 16)
        expected = (each[:, 0] + each[:, 1]) @ head.output.weight.T + head.output.bias
        assert torch.allclose(head.eval()(last_states(states), example), expected, atol=1e-6)

    def test_a_pair_counts_once_in_the_loss_and_twice_in_the_work(self, tiny):
        one, both = (prepared(tiny, "toy_alike", both_orders=value) for value in (False, True))
        example = both.data.train.batch(np.arange(6))
        assert both.build().head.count(example) == 6
        assert np.array_equal(both.data.train_dataloader().shapes[:, 0], 2 * one.data.train_dataloader().shapes[:, 0])

    def test_for_all_tasks_it_is_another_run_only_where_it_acts(self, tiny):
        def same(task):
            return len({planned(reading(tiny), SETTINGS.but(both_orders=on), task).id for on in (False, True)}) == 1

        assert [same(task) for task in ("toy", "toy_pairs", "toy_options", "toy_alike")] == [True, True, True, False]


def permuted(examples, orders):
    """The questions with their options in other orders, and the labels with them."""
    rows = np.take_along_axis(examples.rows, orders, 1)
    labels = (orders == examples.labels[:, None]).argmax(1)
    return ChoiceExamples(examples.known, examples.context, rows, labels, examples.groups, examples.questions)


@pytest.mark.parametrize("layout", ["extract", "cls_sep"])
def test_the_loss_of_questions_does_not_depend_on_the_order_of_their_options(tiny, layout):
    tuning = prepared(tiny, "toy_options", layout=layout, dropout=0.0)
    module, data = tuning.build().eval(), tuning.data
    inputs, shape = data.train, TASKS["toy_options"].shape
    orders = np.argsort(np.random.default_rng(0).random((len(inputs), 3)), axis=1)
    examples = permuted(inputs.examples, orders)
    pieces = Pieces.of(examples.texts(), data.encoder)
    other = shape.inputs(examples, pieces, data.encoder.vocabulary, tuning.settings)
    assert (other.examples.labels != inputs.examples.labels).any()
    losses = [module.head.loss(module(batch), batch) for batch in (i.batch(np.arange(20)) for i in (inputs, other))]
    assert torch.allclose(*losses, rtol=1e-6)
    scores = [module(batch) for batch in (i.batch(np.arange(20)) for i in (inputs, other))]
    assert torch.allclose(scores[0].gather(1, torch.from_numpy(orders[:20])), scores[1], atol=1e-6)


def test_a_new_layout_is_another_run_and_the_usual_one_no_change(tiny):
    def made(layout="cls_sep", **changes):
        return planned(reading(tiny), SETTINGS.but(layout=layout, **changes)).id

    assert made() == made(both_orders=False) == made(auxiliary_lm=0.0) != made("extract")
    assert made("extract") == made("extract", reader="last"), "the reader that it has anyway"
