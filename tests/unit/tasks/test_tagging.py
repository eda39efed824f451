"""Words with tags: rows, windows and context, names as conlleval reads them, files in columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval import metrics as reference

from lightning_modules.config import ConfigError
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.datasets.columns import bio
from lightning_modules.tasks.shapes.tagging import TAG, Sentence, Tagging
from tests.toy_shapes import encoded, shown

SHAPE = Tagging(("X", "Y"))
TAGS = SHAPE.labels
METRICS = tuple(SHAPE.measures)


def sentences(*texts, documents=None, shape=SHAPE):
    """Sentences of words, the tags of which are those of the task in turn."""
    rows = []
    for number, text in enumerate(texts):
        words = tuple(text.split(" "))
        tags = tuple(TAGS[(number + place) % 5] for place in range(len(words)))
        rows.append(Sentence(words, tags, documents[number] if documents else number))
    return shape.read(rows, "made")


def answered(inputs, number):
    """Positions and classes that a row answers."""
    target = inputs.batch(np.array([number])).targets[TAG]
    return target.where.tolist(), target.ids.tolist()


class TestRows:
    def test_a_word_without_pieces_is_answered_o_and_trains_nothing(self, encoder):
        examples = sentences("a \x01 b", "\x01", "\x01 c")
        inputs = encoded(examples, SHAPE, encoder, 16)
        assert shown(inputs, encoder, 0, 1) == ["[CLS] a b [SEP]", "[CLS] c [SEP]"]
        assert [words.tolist() for words in inputs.words] == [[0, 2], [5]]
        outputs = [np.eye(5)[[3, 4]], np.eye(5)[[3]]]
        assert [found.tolist() for found in SHAPE.answers(outputs, inputs)] == [[3, 0, 4], [0], [0, 3]]

    def test_a_long_sentence_has_several_rows_and_each_word_one_answer(self, encoder):
        inputs = encoded(sentences("ab cd ef gh ij a b", "c"), SHAPE, encoder, 8)
        assert [words.tolist() for words in inputs.words] == [[0, 1, 2], [3, 4, 5, 6], [7]]
        assert inputs.cut == 1
        # the rows are filled with the words around, which are not answered
        assert shown(inputs, encoder, 0, 1) == ["[CLS] a ##b c ##d e ##f [SEP]", "[CLS] g ##h i ##j a b [SEP]"]

    def test_a_word_longer_than_a_row_is_cut(self, encoder):
        inputs = encoded(sentences("a bcdefghij c"), SHAPE, encoder, 8)
        assert [words.tolist() for words in inputs.words] == [[0], [1], [2]]
        assert shown(inputs, encoder, 1) == ["[CLS] b ##c ##d ##e ##f ##g [SEP]"]
        assert answered(inputs, 1)[0] == [1]

    @given(st.lists(st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=12), min_size=1, max_size=6))
    def test_every_word_is_answered_once_at_its_own_piece(self, encoder, texts):
        for context in (False, True):
            shape = Tagging(("X", "Y"), context)
            rows = [Sentence(tuple(words), ("O",) * len(words), n // 2) for n, words in enumerate(texts)]
            inputs = encoded(shape.read(rows, "made"), shape, encoder, 10)
            assert np.concatenate(inputs.words).tolist() == list(range(sum(map(len, texts))))
            example = inputs.batch(np.arange(len(inputs)))
            first = [encoder.vocabulary.pieces[i] for i in example.inputs.ids.flatten()[example.targets[TAG].where]]
            assert first == [word[0] for words in texts for word in words]
            assert inputs.sizes.max() <= 10


class TestContext:
    shape = Tagging(("X", "Y"), context=True)

    def test_neighbours_of_the_document_fill_the_row_and_are_not_answered(self, encoder):
        examples = sentences("a b", "c d", "e f", "g h", documents=[0, 0, 0, 1], shape=self.shape)
        inputs = encoded(examples, self.shape, encoder, 8)
        assert shown(inputs, encoder, 0) == ["[CLS] a b c d e f [SEP]"]
        assert [answered(inputs, n)[0] for n in range(4)] == [[1, 2], [3, 4], [5, 6], [1, 2]]
        assert shown(inputs, encoder, 3) == ["[CLS] g h [SEP]"]
        assert shown(inputs, encoder, 1) == ["[CLS] a b c d e f [SEP]"]

    def test_what_one_side_lacks_the_other_gets(self, encoder):
        examples = sentences("a b c", "d", "e f g", documents=[0, 0, 0], shape=self.shape)
        inputs = encoded(examples, self.shape, encoder, 8)
        assert shown(inputs, encoder, 0, 1, 2) == [
            "[CLS] a b c d e f [SEP]", "[CLS] b c d e f g [SEP]", "[CLS] b c d e f g [SEP]"
        ]  # fmt: skip

    def test_few_examples_keep_their_neighbours(self, encoder):
        examples = sentences("a", "b", "c", "d", documents=[0, 0, 0, 0], shape=self.shape).take(np.array([3, 1]))
        inputs = encoded(examples, self.shape, encoder, 8)
        assert shown(inputs, encoder, 0, 1) == ["[CLS] a b c d [SEP]"] * 2
        assert [answered(inputs, n)[0] for n in range(2)] == [[4], [2]]
        assert [item[0] for item in examples.items_for_pin()] == ["d", "b"]
        assert examples.words() == 8


class TestScores:
    def of(self, tags, answers):
        examples = SHAPE.read([Sentence(("a",) * len(row), tuple(row), n) for n, row in enumerate(tags)], "made")
        return SHAPE.score([np.array([TAGS.index(tag) for tag in row]) for row in answers], examples, METRICS)

    def test_equals_seqeval_on_any_tags(self):
        noise = np.random.default_rng(0)
        for _ in range(60):
            lengths = noise.integers(1, 9, int(noise.integers(1, 6)))
            true, given_ = ([[TAGS[n] for n in noise.integers(0, 5, size)] for size in lengths] for _ in range(2))
            given_ = [t if noise.random() < 0.3 else g for t, g in zip(true, given_, strict=True)]
            expected = {
                "entity_f1": reference.f1_score(true, given_, zero_division=0),
                "precision": reference.precision_score(true, given_, zero_division=0),
                "recall": reference.recall_score(true, given_, zero_division=0),
                "accuracy": reference.accuracy_score(true, given_),
            }
            assert self.of(true, given_).metrics == pytest.approx(expected)
            converted = [list(bio(row)) for row in true]
            assert reference.f1_score(true, converted, zero_division=1) == 1
            assert converted == [list(bio(row)) for row in converted]

    def test_lookup_gives_words_their_commonest_tag(self):
        train = SHAPE.read([Sentence(("a", "b", "a", "a"), ("B-X", "O", "O", "B-X"), 0)], "made")
        dev = SHAPE.read([Sentence(("a", "c", "b"), ("B-X", "B-X", "O"), 0)], "made")
        found = SHAPE.baselines(train, dev)
        assert {name: found[name][0].tolist() for name in ("majority", "lookup")} == {
            "majority": [0, 0, 0], "lookup": [1, 0, 0],
        }  # fmt: skip

    def test_the_linear_tagger_knows_new_names_by_their_capitals_alone(self):
        texts = [("saw", name, "today") for name in ("Anna", "Berta", "Clara", "Dora")] * 2
        rows = [Sentence(words, ("O", "B-X", "O"), n) for n, words in enumerate(texts)]
        rows += [
            Sentence(("saw", word, "today"), ("O", "O", "O"), 9) for word in ("nothing", "it", "trees", "rain")
        ] * 2
        train = SHAPE.read(rows, "made")
        new = [("saw", "Emil", "today"), ("saw", "emil", "today")]
        dev = SHAPE.read([Sentence(words, ("O", "B-X", "O"), n) for n, words in enumerate(new)], "made")
        found = SHAPE.baselines(train, dev)
        assert [tags.tolist() for tags in found["linear"]] == [[0, 1, 0], [0, 0, 0]]
        assert [tags.tolist() for tags in found["lookup"]] == [[0, 0, 0], [0, 0, 0]]

    def test_the_linear_tagger_of_one_tag_gives_it(self):
        train = SHAPE.read([Sentence(("a", "b"), ("O", "O"), 0)], "made")
        assert [tags.tolist() for tags in SHAPE.baselines(train, train)["linear"]] == [[0, 0]]


CONLL = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

BRUSSELS NNP I-NP I-LOC
Bonn NNP I-NP B-LOC"""


class TestFiles:
    @pytest.fixture
    def folder(self, home):
        for name in ("conll2003", "wnut17"):
            (home / name).mkdir()
        (home / "conll2003/train.txt").write_text(CONLL)
        (home / "wnut17/wnut17train.conll").write_text("@a\tO\nEmpire\tB-location\nState\tI-location\n\t\nIt\tO\n\n\n")
        return home

    def test_conll_in_its_official_form(self, folder):
        rows = list(TASKS["conll2003"].rows("train"))
        assert [row.document for row in rows] == [1, 1, 2]
        assert rows[0] == Sentence(("EU", "rejects", "German"), ("B-ORG", "O", "B-MISC"), 1)
        assert [row.tags for row in rows[1:]] == [("B-PER", "I-PER"), ("B-LOC", "B-LOC")]
        assert TASKS["conll2003"].examples("train").words() == 5 + 5 + 2
        assert TASKS["conll2003_sentences"].examples("train").words() == 7

    def test_wnut_in_its_official_form(self, folder):
        rows = list(TASKS["wnut17"].rows("train"))
        assert rows == [
            Sentence(("@a", "Empire", "State"), ("O", "B-location", "I-location"), 0), Sentence(("It",), ("O",), 1)
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            ("a\tO\nb\n", r"train\.conll, line 2: 1 column instead of 2 separated by spaces or tabs"),
            ("a\tO\nb,O\n", r"train\.conll, line 2: 1 column instead of 2 .*comma-separated"),
            ("a\tS-person\n", r"line 1: the tag 'S-person' is not O, B-<type> or I-<type>"),
            ("a\tI-\n", r"line 1: the tag 'I-' is not O"),
            ("a\tB-animal\n", r"example 0 of 'wnut17' has the tag 'B-animal', which is not one of O, B-corporation"),
            ("", r"train\.conll is empty"),
            ("\n\t\n\n", "holds no sentence"),
            (b"a\tO\n\xff\tO\n", r"line 2: is not UTF-8 text \(byte 1\)"),
        ],
    )
    def test_malformed_files_are_named_by_line(self, folder, lines, message):
        data = lines if isinstance(lines, bytes) else lines.encode()
        (folder / "wnut17/wnut17train.conll").write_bytes(data)
        with pytest.raises(ConfigError, match=message):
            TASKS["wnut17"].examples("train")
