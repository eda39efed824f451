"""WikiText-2 by words: an LSTM reads articles whole, and counts of its training text are scored on the same words."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lightning_modules.data import open_store
from lightning_modules.data.baselines.kneser_ney import NGrams
from lightning_modules.data.baselines.ngrams import Counted
from lightning_modules.data.store import tokenizer_file
from lightning_modules.data.text.encode import Encoder
from lightning_modules.generation.language_model import of_training
from lightning_modules.zero_shot.measure import asked
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.table import ZERO_SHOT
from tests.unit.training.test_averaging import AWD
from tests.unit.zero_shot.test_asking import written

TASK = ZERO_SHOT["wikitext2_words"]
ARTICLES = " = the dog = \n" + " the old dog sees the cat . \n" * 12 + " = a bird = \n a bird likes the red cat . \n"


@torch.no_grad()
@pytest.mark.parametrize("frame", ["document_ends", "none"])
def test_articles_are_read_whole_and_counts_stand_there(tiny, tmp_path, monkeypatch, frame):
    written(tmp_path, monkeypatch, "wikitext2", ARTICLES)
    system = tiny.but(**AWD | {"format.frame": frame})
    module = system.build(0).eval()
    model = of_training(module, system, Encoder(tokenizer_file(system.data), system.data.tokenizer.kind))
    found = asked(model, TASK.name, Measurement(), system.data, system)
    store = open_store(system.data, "train")
    counts = NGrams(Counted.of(store, 10**6, frame == "document_ends"), 5)
    texts, nats, by_counts, words = TASK.texts(None, None), 0.0, 0.0, 0
    assert len(texts) == 2
    for text in texts:
        row = [*model.start, *model.encode(text.natural)]
        assert text is texts[1] or len(row) > 4 * system.format.sequence_length  # several steps long
        ids = torch.tensor([row])
        states = module.backbone(model.example(ids[:, :-1], torch.ones_like(ids[:, :-1], dtype=torch.bool)))
        logits = model.logits(states, torch.arange(len(row) - 1))
        nats += float(F.cross_entropy(logits.double(), ids[0, 1:], reduction="sum"))
        by_counts += counts.nats(row)[len(model.start) :].sum()
        words += text.words
    assert found.metrics["word_loss"] == pytest.approx(nats / words, rel=1e-5)
    assert found.metrics["perplexity"] == pytest.approx(np.exp(nats / words), rel=1e-4)
    assert found.metrics["word_loss.kneser_ney"] == pytest.approx(by_counts / words)
    assert ("word_loss.kneser_ney_same_tokens" in found.metrics) == (frame == "none")
    assert np.average(found.scores["word_loss"], weights=found.weights) == pytest.approx(found.metrics["word_loss"])
    assert words == sum(len(line.split()) + 1 for line in ARTICLES.splitlines())  # line ends are words


def test_what_was_trained_on_rows_apart_has_the_positions_of_a_row(tiny):
    stream = tiny.but(**AWD)
    apart = {"format.kind": "full_sentences", "format.frame": "cls_sep", "format.lengths": "fixed"}
    rows = stream.but(**apart, **{"schedule.by_length": False, "evaluation.rows": 8})
    encoder = Encoder(tokenizer_file(stream.data), stream.data.tokenizer.kind)
    positions = [of_training(system.build(0), system, encoder).max_positions for system in (stream, rows)]
    assert positions[0] > 10**6
    assert positions[1] == 16
    assert TASK.positions(stream, Measurement()) < TASK.positions(rows, Measurement())
