"""Answers of reading tasks: decoding, what examples are refused, and a model that learns one."""

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import FinetuningRun
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.tasks.reading.passages import Question
from lightning_modules.tasks.scores.decoding import decoded, most_central
from lightning_modules.tasks.shapes.span import Spans
from tests.toy_shapes import COUNTS, reading_task, windows


class TestDecoding:
    @pytest.fixture(params=["cls_sep", "cls_last"])
    def two(self, request):
        inputs = windows(1, request.param)
        assert inputs.begins.tolist() == [1, 4]
        assert inputs.ends.tolist() == [8, 11]
        return inputs

    def outputs(self, inputs, **best):
        """Logits -100 but where ``window_start`` or ``window_end`` says (position of the window, value)."""
        found = [np.zeros((int(size), 2), np.float32) - 100 for size in inputs.sizes[:, 0]]
        for name, places in best.items():
            for window, place, value in places:
                at = inputs.offsets[window] + place if place >= 0 else inputs.nulls[window]
                found[window][at, int(name == "end")] = value
        return found

    def said(self, inputs, n_best=20, max_answer=30, **best):
        found = decoded(self.outputs(inputs, **best), inputs, n_best, max_answer)
        return found.texts[0], found.nulls[0]

    def test_the_best_pair_over_all_windows(self, two):
        text, null = self.said(two, start=[(0, 1, 4.0), (1, 3, 6.0)], end=[(0, 2, 5.0), (1, 4, 1.0)])
        assert text == "b c"
        assert null == -200 - 9

    def test_the_end_is_not_before_the_start_nor_too_far(self, two):
        assert self.said(two, start=[(0, 3, 9.0)], end=[(0, 1, 9.0), (0, 3, 2.0)])[0] == "d"
        assert self.said(two, max_answer=3, start=[(0, 0, 9.0)], end=[(0, 3, 9.0), (0, 2, 3.0)])[0] == "a b c"

    def test_the_start_counts_where_it_has_most_context(self, two):
        assert self.said(two, start=[(0, 6, 9.0), (1, 3, 2.0)], end=[(0, 6, 9.0), (1, 3, 2.0)])[0] == "g"
        assert self.said(two, start=[(0, 6, 9.0), (0, 1, 1.0)], end=[(0, 6, 9.0), (0, 1, 1.0)])[0] == "b c d e f g"

    def test_question_and_special_positions_are_no_answers_but_take_places(self, two):
        outputs = self.outputs(two, start=[(0, 2, 3.0)], end=[(0, 2, 3.0)])
        outputs[0][two.offsets[0] - 2] = 8.0
        assert decoded(outputs, two, 20, 30).texts == ["c"]
        outputs[1][: two.offsets[1]] = 8.0
        assert decoded(outputs, two, 1, 30).texts == [""]
        assert decoded(outputs, two, 1, 30).nulls[0] == np.inf

    def test_the_null_score_is_the_smallest_of_the_windows(self, two):
        _, null = self.said(
            two, start=[(0, -1, 3.0), (1, -1, 2.0), (0, 2, 1.0)], end=[(0, -1, 3.0), (1, -1, 2.0), (0, 2, 1.0)]
        )
        assert null == 4 - 2

    def test_most_central_is_run_squads(self):
        """Against `_check_is_max_context` as published."""
        noise = np.random.default_rng(0)
        for _ in range(30):
            room, count = int(noise.integers(3, 12)), int(noise.integers(1, 40))
            step = int(noise.integers(1, room + 1))
            begins = [0]
            while begins[-1] + room < count:
                begins.append(begins[-1] + step)
            ends = [min(begin + room, count) for begin in begins]
            found = most_central(np.array(begins), np.array(ends))
            for place in range(count):
                scores = [
                    min(place - b, e - 1 - place) + 0.01 * (e - b) if b <= place < e else -1
                    for b, e in zip(begins, ends, strict=True)
                ]
                for window, (b, e) in enumerate(zip(begins, ends, strict=True)):
                    if b <= place < e:
                        assert found[window][place - b] == (scores.index(max(scores)) == window)


class TestReading:
    GOOD = Question("1", "a b", "c d e", ((2, "d"),))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"id": ""}, "question number 1 of 'made here' has no id"),
            ({"text": " \n"}, "question '2' of 'made here' is empty"),
            ({"context": "\u00a0"}, "question '2' of 'made here' has an empty passage"),
            ({"answers": ()}, "has no answer, which only .*unanswerable"),
            ({"answers": ((2, " "),)}, "has an empty answer"),
            ({"answers": ((0, "c"), (1, "d"))}, "has the answer 'd', which is not at character 1"),
            ({"answers": ((-1, "e"),)}, "has the answer 'e', which is not at character -1"),
            ({"id": "1"}, "question '1' of 'made here' occurs twice"),
        ],
    )
    def test_what_is_wrong_is_named(self, change, message):
        with pytest.raises(ConfigError, match=message):
            Spans().read([self.GOOD, self.GOOD._replace(id="2")._replace(**change)], "made here")

    def test_a_dozen_are_named(self):
        rows = [self.GOOD._replace(id=str(n), text="") for n in range(20)]
        with pytest.raises(ConfigError, match="8 more questions are wrong"):
            Spans().read(rows, "made here")


@pytest.mark.parametrize(
    ("unanswerable", "layout", "beam"),
    [(False, "cls_sep", None), (True, "cls_sep", None), (True, "cls_last", {"starts": 2, "ends": 2})],
)
def test_a_tiny_model_learns_to_read(tiny, monkeypatch, unanswerable, layout, beam):
    task = reading_task(unanswerable)
    monkeypatch.setitem(TASKS, "toy_spans", task)
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    settings = FineTuning().but(
        **{"epochs": 5, "batch_size": 8, "max_length": 16, "precision": "fp32", "optimizer.peak_lr": 3e-2},
        span_beam=beam,
        layout=layout,
    )
    system = tiny.but(**{"model.segment_types": 3}) if layout == "cls_last" else tiny
    tuning = FinetuningRun(system, "toy_spans", settings, 0, None)
    module, data = tuning.build(), tuning.data
    assert len(data.dev) > COUNTS["dev"]  # some passages need two windows
    torch.manual_seed(0)  # dropout
    pl.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
        enable_model_summary=False, num_sanity_val_steps=0,
    ).fit(module, data)  # fmt: skip
    train_rows, dev = task.examples("train"), task.examples("dev")
    others = [task.score(given, dev).metrics["f1"] for given in task.shape.baselines(train_rows, dev).values()]
    assert module.scored.metrics["f1"] > max(others) + 0.2
    assert list(module.scored.predictions) == dev.ids
