"""Zero-shot tasks of a model whose probabilities are known: scores are those worked out by hand."""

import dataclasses
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from lightning_modules.config import ConfigError
from lightning_modules.data.baselines.bigram import Bigrams
from lightning_modules.data.text.tokenizer import SPECIALS, Vocabulary
from lightning_modules.generation.scoring import Continuation
from lightning_modules.tasks.shapes.coreference import MentionExamples
from lightning_modules.tasks.shapes.texts import TextExamples
from lightning_modules.zero_shot import cloze, labelled, last_word, options, sources
from lightning_modules.zero_shot.function_words import is_content, words_of
from lightning_modules.zero_shot.options import Choice, Options
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.table import ZERO_SHOT
from lightning_modules.zero_shot.task import SAME_TOKENS, Asking
from tests.depth import depth
from tests.language_models import system
from tests.messages import names, naming
from tests.unit.data import byte_level
from tests.unit.zero_shot.by_frequency import model

WORDS = ["the", "cat", "saw", "dog", "house", "ran", "home", "very", "positive", "negative", "good", "bad", ".", ","]


def written(folder, monkeypatch, name, content):
    """A file of a source, with its own pin."""
    source = sources.SOURCES[name]
    path = folder / source.origin.files["test"][0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode())
    monkeypatch.setenv("ABLATIONS_DATA", str(folder))
    pins = folder / "pins.json"
    known = json.loads(pins.read_text()) if pins.exists() else {}
    pins.write_text(json.dumps(known | {name: {"test": sources.of(source.read(path)).to_dict()}}))
    monkeypatch.setattr(sources, "PINS", dataclasses.replace(sources.PINS, path=pins))


def test_a_last_word_is_right_if_the_model_would_write_it(tmp_path, monkeypatch):
    """After "saw" the model writes "the", with the filter "dog"; after "ran" it writes "home"."""
    passages = ["The cat saw dog", "The dog ran home", "The dog saw\n\nhouse"]
    written(tmp_path, monkeypatch, "lambada", "\n".join(json.dumps({"text": text}) for text in passages))
    follows = {"saw": {"the": 0.5, "dog": 0.3}, "ran": {"home": 0.6}}
    found = ZERO_SHOT["lambada"].ask(Asking(model(tmp_path, WORDS, follows), Measurement()))
    assert found.scores["accuracy"].tolist() == [False, True, False]
    assert found.scores["filtered_accuracy"].tolist() == [True, True, False]
    assert found.metrics["accuracy"] == pytest.approx(1 / 3)
    assert found.metrics["filtered_accuracy"] == pytest.approx(2 / 3)
    left = (1 - 0.8) / (len(WORDS) + 5 - 2)
    assert found.scores["loss"] == pytest.approx([-math.log(0.3), -math.log(0.6), -math.log(left)], rel=1e-5)
    assert found.metrics["loss"] == pytest.approx(found.scores["loss"].mean())
    assert found.metrics["accuracy.majority"] == pytest.approx(1 / 3)
    assert found.metrics["cut"] == 0


def test_a_passage_that_is_too_long_loses_its_beginning_and_is_counted(tmp_path, monkeypatch):
    passages = [f"{'cat dog ' * 40}ran home", "The dog ran home"]
    written(tmp_path, monkeypatch, "lambada", "\n".join(json.dumps({"text": text}) for text in passages))
    found = ZERO_SHOT["lambada"].ask(Asking(model(tmp_path, WORDS, {"ran": {"home": 0.9}}), Measurement()))
    assert found.metrics["cut"] == 0.5
    assert found.scores["accuracy"].tolist() == [True, True]


def test_the_most_frequent_content_word_of_the_passage_stands_beside_it(tmp_path, monkeypatch):
    passages = ["House the the dog house ran house", "House dog ran home"]
    written(tmp_path, monkeypatch, "lambada", "\n".join(json.dumps({"text": text}) for text in passages))
    found = ZERO_SHOT["lambada"].ask(Asking(model(tmp_path, WORDS, {}), Measurement()))
    assert found.metrics["accuracy.frequent"] == 0.5


@pytest.mark.parametrize("stride", [None, 1, 3, 30, 500])
def test_perplexity_counts_the_words_and_bytes_of_the_source(tmp_path, monkeypatch, stride):
    """The model reads natural text; each of its tokens is predicted once, whatever the stride."""
    first = " \n = the cat = \n the cat saw the dog , the dog ran home . \n"
    articles = [first + " cat" * 90 + " . \n", " = dog = \n the dog ran . \n"]
    written(tmp_path, monkeypatch, "wikitext2", "".join(articles))
    lm = model(tmp_path, [*WORDS, "="], {"the": {"cat": 0.5, "dog": 0.25}, "cat": {"cat": 0.7}}, positions=16)
    found = ZERO_SHOT["wikitext2"].ask(Asking(lm, Measurement(stride=stride)))
    assert sources.SOURCES["wikitext2"].texts() == articles
    weights = lm.heads["table"].weight
    each = []
    for text in articles:
        ids = [*lm.start, *lm.encode(text)]
        each.append(-sum(float(weights[a, b]) for a, b in itertools.pairwise(ids)))
    size, words = sum(len(text.encode()) for text in articles), sum(len(text.split()) for text in articles)
    lines = sum(text.count("\n") for text in articles)
    assert found.metrics["nats_per_byte"] == pytest.approx(sum(each) / size, rel=1e-5)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(sum(each) / (words + lines)), rel=1e-4)
    assert found.weights.tolist() == [len(text.encode()) for text in articles]
    mean = np.average(found.scores["nats_per_byte"], weights=found.weights)
    assert mean == pytest.approx(found.metrics["nats_per_byte"])


@pytest.mark.parametrize("has_start", [True, False])
def test_word_counts_are_scored_on_the_tokens_that_a_model_predicts(tmp_path, monkeypatch, text_file, has_start):
    """Without a start token nothing predicts the first token of a text, and counts must not pay for it either."""
    written(tmp_path, monkeypatch, "wikitext2", " = the cat = \n the dog ran . \n = dog = \n the cat saw . \n")
    lm = model(tmp_path, [*WORDS, "="], {})
    asking = Asking(lm if has_start else dataclasses.replace(lm, start=()), Measurement())
    size = lm.encoder.vocabulary.size
    tokens = np.arange(1, size + 1)  # a token's count is its id and one
    vars(asking)["counted"] = Bigrams(sparse.csr_matrix((size, size)), tokens)
    found = ZERO_SHOT["wikitext2"].ask(asking)
    rows = [asking.pieces(text.natural) for text in ZERO_SHOT["wikitext2"].texts(None, None)]
    nats = [-np.log((np.array(row) + 2) / (tokens.sum() + size)) for row in rows]
    all_bytes = found.weights.sum()
    assert found.metrics["nats_per_byte.bigram"] == pytest.approx(sum(each.sum() for each in nats) / all_bytes)
    predicted = sum(len(row) - (not has_start) for row in rows)  # the model calls all tokens equally probable
    assert found.metrics["nats_per_byte"] * all_bytes == pytest.approx(predicted * math.log(size), rel=1e-5)
    for method in ("unigram", "bigram"):
        same = found.metrics.get(f"nats_per_byte.{method}{SAME_TOKENS}")
        rest = pytest.approx(sum(each[1:].sum() for each in nats) / all_bytes)
        assert same == (None if has_start else rest)


def test_unknown_words_are_counted(tmp_path, monkeypatch):
    written(tmp_path, monkeypatch, "wikitext2", " = the = \n the zebra \n = cat = \n cat \n")
    found = ZERO_SHOT["wikitext2"].ask(Asking(model(tmp_path, WORDS, {}), Measurement()))
    assert found.metrics["unknown"] == pytest.approx(5 / 9)  # four "=" and a zebra


class Asked(Options):
    """Questions that a test gives."""

    name, title, source = "asked", "asked", "here"

    def __init__(self, *questions, demonstrations=()):
        self.given, self.shown = list(questions), list(demonstrations)

    def questions(self, asking):
        return self.given

    def demonstrations(self):
        return self.shown

    def size(self):
        return len(self.given), 2, 8.0

    def fingerprint(self):
        return ""

    def check(self):
        pass

    def at_hand(self):
        return True


@pytest.mark.parametrize(("rule", "answer"), [("sum", 0), ("mean", 1), ("gain", 1)])
def test_the_rule_decides_between_a_short_and_a_long_option(tmp_path, rule, answer):
    """p(home) = .3; p(the cat cat cat) = .35 * .9 ** 3 = .26, whose mean is higher. After [CLS] "home" is likely."""
    follows = {"ran": {"home": 0.3, "the": 0.35}, "the": {"cat": 0.9}, "cat": {"cat": 0.9}, "[CLS]": {"home": 0.6}}
    question = Choice(("dog ran",), ("home", "the cat cat cat"), 1)
    found = Asked(question, question).ask(Asking(model(tmp_path, WORDS, follows), Measurement(rule=rule)))
    assert found.metrics["accuracy"] == answer
    assert found.metrics["all_equal"] is True


def test_a_model_without_a_start_token_chooses_by_sum_or_mean_and_not_by_gain(tmp_path):
    """Nothing predicts the first token of an option without a prompt."""
    lm = dataclasses.replace(model(tmp_path, WORDS, {"ran": {"home": 0.5}}), start=())
    question = Choice(("dog ran",), ("home", "house"), 0)
    for rule in ("sum", "mean"):
        assert Asked(question).ask(Asking(lm, Measurement(rule=rule))).metrics["accuracy"] == 1
    framed = system(**{"format.frame": "none", "format.break_mode": "none"})
    (problem,) = Asked(question).problems(framed, Measurement(rule="gain"))
    assert names(problem.message, "asked", "frame", "sum")
    assert not list(Asked(question).problems(framed, Measurement()))
    assert not list(Asked(question).problems(system(), Measurement(rule="gain")))


@pytest.mark.parametrize(
    ("kind", "pieces", "may"),
    [
        ("wordpiece", ["the", "an", "##the", "dog", ".", "##’"], ["##the", "dog"]),
        ("letter_bpe", ["the</w>", "the", "an", "dog</w>", ".</w>", "’"], ["the", "an", "dog</w>"]),
        ("byte_bpe", ["Ġthe", "Ġan", "the", "Ġdog", ".", "âĢĻ", "ĠâĢĶ", "Ġ", "Ã·"], ["the", "Ġdog", "Ġ"]),
        ("unigram", ["▁the", "the", "▁dog", "▁", "▁.", "1"], ["the", "▁dog", "▁"]),
    ],
)
def test_the_filter_bars_whole_function_words_and_signs(kind, pieces, may):
    vocabulary = Vocabulary.of([*SPECIALS, *pieces], kind)
    kept = zip(vocabulary.pieces, barred(vocabulary), strict=True)
    assert [piece for piece, is_barred in kept if not is_barred] == may


def barred(vocabulary):
    return last_word.barred(SimpleNamespace(model=SimpleNamespace(encoder=SimpleNamespace(vocabulary=vocabulary))))


@pytest.mark.parametrize("size", byte_level.SIZES)
@pytest.mark.parametrize("language", byte_level.LOWER)
def test_the_filter_bars_no_piece_of_a_content_word(tmp_path, language, size):
    """Wherever its letters are cut: a word must not be wrong whatever the model says."""
    text = byte_level.LOWER[language]
    encoder = byte_level.encoder(tmp_path, text, size)
    assert not barred(encoder.vocabulary)[encoder([text])[0]].any()


def test_shots_are_balanced_drawn_by_their_seed_and_stand_before_the_question(tmp_path, monkeypatch):
    solved = [Choice((f"w{n} very",), ("negative", "positive"), n % 2) for n in range(40)]
    four = options.shots(solved, Measurement(shots=4))
    assert len(four) == 4
    assert sum(text.endswith("positive") for text in four) == 2
    assert options.shots(solved, Measurement(shots=4)) == four
    assert options.shots(solved, Measurement(shots=4, shots_seed=1)) != four
    assert options.shots(solved, Measurement()) == []
    seen = []
    monkeypatch.setattr(options, "scored", lambda lm, prompts, own, **more: seen.extend(prompts) or _alike(own))
    asked = Asked(Choice(("good very",), ("negative", "positive"), 1), demonstrations=solved)
    asked.ask(Asking(model(tmp_path, WORDS, {}), Measurement(shots=4)))
    assert seen == [f"{' '.join(four)} good very"] * 2


def _alike(choices):
    return [[Continuation(text, np.array([-1.0]), -1.0) for text in own] for own in choices]


def test_reviews_are_followed_by_very_and_a_word(tmp_path, monkeypatch):
    texts = TextExamples(["good", "bad", "good cat"], None, np.array([1, 0, 0]))
    monkeypatch.setattr(labelled, "_checked", lambda task, split: texts)
    monkeypatch.setattr(labelled, "baselines", lambda task: {})
    follows = {"very": {"positive": 0.6, "negative": 0.1}}
    found = ZERO_SHOT["sst2_asked"].ask(Asking(model(tmp_path, WORDS, follows), Measurement()))
    assert found.scores["accuracy"].tolist() == [True, False, False]
    assert found.metrics["all_equal"] is True
    assert found.metrics["accuracy.majority"] == pytest.approx(2 / 3)


def test_a_sentence_is_acceptable_above_the_threshold_of_training_examples(tmp_path, monkeypatch):
    parts = {
        "train": TextExamples(["the cat", "the dog", "dog the", "cat the"], None, np.array([1, 1, 0, 0])),
        "dev": TextExamples(["the dog", "ran the"], None, np.array([1, 0])),
    }
    monkeypatch.setattr(labelled, "_checked", lambda task, split: parts[split])
    follows = {"the": {"cat": 0.5, "dog": 0.4}, "[CLS]": {"the": 0.5}}
    found = ZERO_SHOT["cola_asked"].ask(Asking(model(tmp_path, WORDS, follows), Measurement()))
    assert found.metrics["matthews"] == 1
    assert found.metrics["auc"] == 1


def test_the_threshold_is_the_best_of_all():
    noise = np.random.default_rng(0)
    for _ in range(depth(15, 50)):
        scores, labels = noise.normal(size=30).round(1), noise.integers(0, 2, 30)
        if 0 < labels.sum() < 30:
            best = max(labelled.matthews(labels, (scores > t).astype(int)) for t in np.unique(scores)[:-1] + 0.05)
            chosen = labelled.matthews(labels, (scores > labelled.threshold(scores, labels)).astype(int))
            assert chosen == pytest.approx(best)


def test_names_take_the_place_of_the_pronoun(tmp_path, monkeypatch):
    """Of "her" before a content word the names need an 's; a pronoun for neither name is left out."""
    texts = ["Ann met Eve when she saw the dog", "Ann met Eve and her dog ran", "Ann met Eve when she ran home"]
    spans = np.array([[[4, 5], [0, 1], [2, 3]]] * 3)
    examples = MentionExamples(list("abc"), texts, spans, np.array([1, 0, 2]), np.array([True] * 3))
    parts = {"train": examples.take(np.array([2])), "dev": examples}
    monkeypatch.setattr(labelled, "_checked", lambda task, split: parts[split])
    words = [*WORDS, "ann", "eve", "met", "when", "and", "'", "s"]
    follows = {"eve": {"saw": 0.5}, "s": {"dog": 0.5}}
    asking = Asking(model(tmp_path, words, follows), Measurement())
    first, second = ZERO_SHOT["gap_asked"].questions(asking)
    assert first.prompts == ("Ann met Eve when Ann", "Ann met Eve when Eve")
    assert second.prompts == ("Ann met Eve and Ann's", "Ann met Eve and Eve's")
    assert first.options == ("saw the dog",) * 2
    found = ZERO_SHOT["gap_asked"].ask(asking)
    assert found.scores["accuracy"].tolist()[0]
    assert found.metrics["accuracy.nearest"] == 0.5


def test_a_cloze_asks_for_a_word_of_the_passage():
    noise = np.random.default_rng(0)
    names = ["Anna", "Bruno", "river", "garden", "stone", "winter", "letter", "the", "and", "of", "Clara", "window"]
    made = 0
    for number in range(60):
        text = ". ".join(" ".join(noise.choice(names, size=8)) for _ in range(12)) + "."
        question = cloze.made(text, number)
        if question is None:
            continue
        made += 1
        answers = [words_of(option)[0] for option in question.options]
        right = answers[question.label]
        (passage,) = question.prompts
        assert text.startswith(f"{passage} {question.options[question.label]}")
        assert all(word in words_of(passage) and is_content(word) for word in answers)
        assert len({word.lower() for word in answers}) == len(answers) <= 10
        assert {word[0].isupper() for word in answers} == {right[0].isupper()}
        tails = {option[len(word) :] for option, word in zip(question.options, answers, strict=True)}
        assert len(tails) == 1
    assert made > 30
    assert len({cloze.made(text, n).label for n in range(40)}) > 1, "the right option has no place of its own"


def test_other_texts_than_the_pinned_ones_are_refused(tmp_path, monkeypatch):
    written(tmp_path, monkeypatch, "lambada", json.dumps({"text": "The dog ran home"}))
    path = tmp_path / "lambada" / "lambada_test.jsonl"
    path.write_text(json.dumps({"text": "The dog ran away"}))
    with pytest.raises(ConfigError, match=naming("lambada", "not the pinned ones")):
        ZERO_SHOT["lambada"].check()


def test_a_malformed_passage_is_named_by_its_line(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=naming("lambada_test.jsonl, line 2", "passage")):
        written(tmp_path, monkeypatch, "lambada", '{"text": "The dog ran home"}\n{"text": "alone"}')
