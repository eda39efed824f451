"""Rows of several languages: what a pair is, which language comes when, and what one language alone equals."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_modules.batch import NO_LANGUAGE, Example, Unsupported
from lightning_modules.config import ConfigError, identity
from lightning_modules.data.formats.text import by_language
from lightning_modules.data.order.sampler import probabilities
from lightning_modules.data.store import open_store
from lightning_modules.model import Transformer
from lightning_modules.pretraining import fit
from lightning_modules.training.callbacks import Interrupted
from lightning_modules.training.weights import WEIGHTS, load_weights
from tests.languages import WORDS, texts, tiny_xlm


@pytest.fixture
def folder(tmp_path, shared_cache):
    texts(tmp_path / "text", ("en", "de", "es"))
    return tmp_path / "text"


@pytest.fixture
def parallel(folder):
    return f"lines:en-de:{folder}/*"


def rows(system, count=1000):
    sequences = system.data_module(0).sequences
    return sequences, sequences.batch(np.arange(min(count, len(sequences))))


def trained(system, folder, **options):
    fitted = fit(system, 3, folder, **options)
    return fitted, load_weights(folder / WEIGHTS)


def same_bits(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_pair_is_its_sentences_as_rows_of_their_own_one_behind_the_other(parallel):
    system = tiny_xlm(parallel, **{"format.languages": "pairs"})
    sequences, tokens = rows(system)
    alone = rows(system.but(**{"format.languages": "apart", "format.break_mode": "documents"}))[1]
    known = {tuple(row[real].tolist()): int(language[0]) for row, real, language in
             zip(alone.ids, alone.real, alone.tables["language"], strict=True)}  # fmt: skip
    assert (tokens.tables["language"][0, 0], len(sequences)) == (1, len(tokens.ids)), "English comes first, as named"
    for row in range(len(tokens.ids)):
        real = tokens.real[row]
        ids, language, place = tokens.ids[row][real], tokens.tables["language"][row][real], tokens.positions[row][real]
        second = int((ids == 2).nonzero()[1])
        assert set(language[:second].tolist()) == {1}
        assert set(language[second:].tolist()) == {0}
        assert place.tolist() == [*range(second), *range(len(ids) - second)]
        assert known[tuple(ids[:second].tolist())] == 1, "the English sentence as it is read alone"
        assert known[tuple(ids[second:].tolist())] == 0


def test_no_row_of_running_text_has_two_languages_and_all_tokens_are_shown_once(parallel, folder):
    system = tiny_xlm(parallel, f"lines:es:{folder}/*", **{"format.languages": "apart"})
    sequences, tokens = rows(system)
    text = by_language(open_store(system.data, "train"))
    assert text.names == ("de", "en", "es")
    assert sorted(text.store.ids.tolist()) == sorted(open_store(system.data, "train").ids.tolist())
    shown = np.concatenate([np.arange(*edges) for edges in zip(*sequences.stretches[0], strict=True)])
    assert (shown == np.arange(len(text.store.ids))).all()
    counted = sequences.tokens_by_language()
    assert ((counted > 0).sum(1) == 1).all()
    for row in range(len(tokens.ids)):
        spoken = text.names[int(tokens.tables["language"][row, 0])]
        pieces = (text.store.vocabulary.pieces[n] for n in tokens.ids[row][~tokens.special[row]])
        _, *whole = "".join(pieces).replace("</w>", " ").split()[:-1]  # the words at both ends may be cut
        assert set(whole) <= {word.lower() for word in WORDS[spoken]} | {"."}


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "rotary", "linear_bias", "relative"])
def test_swapping_the_sentences_of_a_pair_permutes_states_and_leaves_the_loss(parallel, positions):
    torch.manual_seed(0)
    system = tiny_xlm(parallel, **{"format.languages": "pairs", "model.positions": positions, "model.init_std": 0.3})
    _, tokens = rows(system, 8)
    model = system.model.but(dropout=0.0, embedding_dropout=0.0, attention_dropout=0.0).build(80).double()
    order = []
    for ids, real in zip(tokens.ids, tokens.real, strict=True):
        second, end, all_ = int((ids == 2).nonzero()[1]), int(real.sum()), len(ids)
        order.append([*range(second, end), *range(second), *range(end, all_)])
    order = torch.tensor(order)

    def swapped(values):
        return values.gather(1, order)

    turned = replace(
        tokens,
        **{name: swapped(getattr(tokens, name)) for name in ("ids", "special", "real", "positions")},
        tables={name: swapped(table) for name, table in tokens.tables.items()},
    )
    here, there = (model(Example.of(one)).last for one in (tokens, turned))
    reached = tokens.real
    expected = here.gather(1, order[..., None].expand_as(here))
    assert torch.allclose(expected[swapped(reached)], there[swapped(reached)], atol=1e-10)
    continued = replace(tokens, positions=None)
    assert not torch.allclose(model(Example.of(continued)).last[reached], here[reached], atol=1e-3)


def test_one_language_alone_is_masked_language_modelling_to_the_bit(tmp_path, folder):
    system = tiny_xlm(f"lines:en:{folder}/*", **{"model.languages": [], "format.language_exponent": 0.3})
    system = system.but(**{"data.tokenizer.vocab_size": 70, "data.tokenizer.kind": "wordpiece"})
    plain, weights = trained(system.but(**{"format.languages": "one_text"}), tmp_path / "plain")
    apart, others = trained(system.but(**{"format.languages": "apart"}), tmp_path / "apart")
    assert same_bits(weights, others)
    assert plain.metrics == apart.metrics
    assert {name: seen for name, seen in apart.cost.items() if name.startswith("tokens.")} == {
        "tokens.en": apart.cost["real_tokens"]
    }


@pytest.mark.parametrize("rows_are", ["apart", "pairs", "in_turn"])
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path, parallel, folder, rows_are):
    system = tiny_xlm(parallel, f"lines:de:{folder}/*", **{"format.languages": rows_are})
    system = system.but(**{"training.micro_batch_size": 2})
    whole, weights = trained(system, tmp_path / "whole")
    steps = iter([False, False, True])
    with pytest.raises(Interrupted):
        fit(system, 3, tmp_path / "parts", stop=lambda: next(steps, False))
    parts, resumed = trained(system, tmp_path / "parts")
    assert same_bits(weights, resumed)
    assert whole.metrics == parts.metrics
    counted = {name: seen for name, seen in whole.cost.items() if name.startswith("tokens.")}
    assert counted == {name: seen for name, seen in parts.cost.items() if name.startswith("tokens.")}
    assert sum(counted.values()) == whole.cost["real_tokens"]


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("model.languages", []),
        ("model.languages", ["en", "de", "es"]),
        ("format.languages", "apart"),
        ("format.languages", "pairs"),
        ("format.language_exponent", 0.0),
        ("format.reset_positions", False),
    ],
)
def test_each_knob_of_languages_changes_the_training(tmp_path, parallel, folder, path, other):
    texts(folder / "more", ("es",), lines=1500)
    more = f"lines:es:{folder}/more/*"
    system = tiny_xlm(parallel, more, **{"format.language_exponent": 1.0, "training.steps": 8})
    losses = [trained(one, tmp_path / str(n))[0].metrics for n, one in enumerate((system, system.but(**{path: other})))]
    assert losses[0]["heldout.loss"] != losses[1]["heldout.loss"]
    assert identity(system.essence()) != identity(system.but(**{path: other}).essence())


def test_knobs_of_languages_that_do_nothing_are_no_other_run(parallel):
    one_text = tiny_xlm(parallel, **{"model.languages": [], "format.languages": "one_text"})
    changes = {"format.language_exponent": 0.2, "format.reset_positions": False}
    assert identity(one_text.essence()) == identity(one_text.but(**changes).essence())
    apart = tiny_xlm(parallel, **{"format.languages": "apart"})
    assert identity(apart.essence()) == identity(apart.but(**{"format.reset_positions": False}).essence())


def drawn(system, steps=4000):
    """Which language each step of running text has."""
    system = system.but(**{"training.steps": steps, "training.batch_by": "sequences"})
    (stage,) = system.data_module(1).train_dataloader().stages
    return stage.sampler, [stage.sampler.groups[group].name for group in stage.sampler.drawn]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_languages_come_as_often_as_the_formula_says(parallel, folder, exponent):
    changes = {"format.languages": "apart", "format.language_exponent": exponent, "model.languages": []}
    order, names = drawn(tiny_xlm(parallel, f"lines:de:{folder}/*", f"lines:es:{folder}/*", **changes))
    tokens = np.array([order.sizes[group.first : group.end].sum() for group in order.groups])
    expected = tokens.astype(float) ** exponent
    expected /= expected.sum()
    assert probabilities(tokens, exponent) == pytest.approx(expected)
    found = np.array([names.count(group.name) for group in order.groups]) / len(names)
    assert (np.abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / len(names))).all()


def test_steps_of_text_and_of_pairs_take_turns_and_each_goes_through_its_own(parallel):
    order, names = drawn(tiny_xlm(parallel), 60)
    assert [("-" in name) for name in names] == [False, True] * 30
    shown = [order.presented(step).sample for step in range(60)]
    pairs = np.concatenate(shown[1::2])
    group = order.groups[-1]
    assert group.name == "en-de"
    first_pass = pairs[: group.end - group.first]
    assert sorted(first_pass) == list(range(group.first, group.end)), "each pair once before any comes again"


@torch.no_grad()
def test_a_language_that_is_not_named_is_an_error_unless_it_is_left_out_on_purpose():
    torch.manual_seed(0)
    model = Transformer(num_layers=1, hidden_size=16, num_heads=2, segment_types=0, languages=("de", "en")).build(40)
    model.eval()
    example = Example.of(_tokens())
    with pytest.raises(Unsupported, match="does not name the language of its rows"):
        model(example)
    states = {}
    for number in (0, 1, NO_LANGUAGE):
        example.inputs.tables["language"] = torch.full((2, 6), number)
        states[number] = model(example).last
    assert not torch.allclose(states[0], states[1])
    model.embeddings.tables["language"].weight.zero_()
    example.inputs.tables["language"] = torch.zeros(2, 6, dtype=torch.long)
    assert torch.equal(model(example).last, states[NO_LANGUAGE]), "left out is nothing added"


def _tokens():
    from tests.conftest import make_tokens

    return make_tokens(2, 6, 40)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.languages": ["en", "dee"]}, r"model\.languages has no 'de'.*dee"),
        ({"model.languages": ["en", "de", "en"]}, "names one twice"),
        ({"format.languages": "one_text"}, "set it to apart, pairs or in_turn"),
        ({"format.share": 0.5}, "set share to 1.0"),
        ({"evaluation.pairs": 8}, r"evaluation\.pairs is of one text"),
        ({"evaluation.words": 8}, r"evaluation\.words is of one text"),
        (
            {"objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"},
            "whose words objectives.mlm hides",
        ),
        ({"data.corpora": ["wikipedia-mini", "text:x"]}, "the language of 'text:x' is not known"),
        ({"data.corpora": ["bible:en-xx"]}, "bible has no language 'xx'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(parallel, changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny_xlm(parallel).but(**changes)


def test_pairs_of_no_parallel_text_are_refused(folder):
    system = tiny_xlm(f"lines:en:{folder}/*", **{"data.tokenizer.vocab_size": 70, "data.tokenizer.kind": "wordpiece"})
    with pytest.raises(ConfigError, match=r"shows pairs, and lines:en:.* has none"):
        _ = system.data_module(0).sequences


LONGER = {"format.sequence_length": 64, "model.max_positions": 64}


@pytest.fixture
def many(folder):
    texts(folder / "many", ("en", "de"), lines=1500, seed=3)
    return f"lines:en-de:{folder}/many/*"


def test_hidden_words_are_the_same_next_to_their_translation_and_next_to_another(many):
    system = tiny_xlm(many, **{"evaluation.translated_pairs": 40, "evaluation.rate": 0.4}, **LONGER)
    own, other = (list(one) for one in system.data_module(0).heldout_translations(40, system.collate_translations()))
    differ = 0
    for here, there in zip(own, other, strict=True):
        assert torch.equal(here.targets["mlm"].where, there.targets["mlm"].where)
        assert torch.equal(here.targets["mlm"].ids, there.targets["mlm"].ids)
        second = (here.inputs.ids == 2).cumsum(1) > 1
        assert not second.flatten()[here.targets["mlm"].where].any(), "no word of the translation is hidden"
        assert torch.equal(here.inputs.ids[~second], there.inputs.ids.where(~second, 0)[~second])
        differ += int((here.inputs.ids != there.inputs.ids).any(1).sum())
        assert set(here.inputs.tables["language"][:, 0].tolist()) <= {0, 1}
    rows = sum(len(one.inputs.ids) for one in own)
    assert differ > 0.8 * rows


@pytest.mark.nightly
def test_a_model_of_pairs_gains_from_a_translation_and_one_of_single_sentences_does_not(tmp_path, many):
    changes = {
        "evaluation.translated_pairs": 64,
        "training.steps": 600,
        "training.batch_size": 8,
        "model.hidden_size": 32,
    }
    changes |= {"optimizer.peak_lr": 0.01, "model.num_layers": 2, "model.dropout": 0.0, "model.attention_dropout": 0.0}
    changes |= {"model.embedding_dropout": 0.0, "model.positions": "rotary", "schedule.decay": "linear"}
    gains = {}
    for rows_are in ("pairs", "apart"):
        system = tiny_xlm(many, **changes, **LONGER, **{"format.languages": rows_are})
        found = trained(system, tmp_path / rows_are)[0].metrics
        gains[rows_are] = found["heldout.translation_gain"]
        assert found["heldout.mistranslated_loss"] - found["heldout.translated_loss"] == pytest.approx(gains[rows_are])
    assert gains["pairs"] > 0.3
    assert abs(gains["apart"]) < 0.1
