"""Inputs of reading tasks: windows, targets, and the way from characters to pieces and back."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lightning_modules.data import Tokenizer, Vocabulary
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import train
from lightning_modules.tasks import FineTuning
from lightning_modules.tasks.reading.passages import Question
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.reading.spelling import Spelling
from lightning_modules.tasks.reading.windows import SpanInputs
from lightning_modules.tasks.shapes.span import SpanHead, Spans

LETTERS = "abcdefghij"
TEXT = [*LETTERS, *(f"{a}{b}{c} ({c}{a}) {b}." for a in LETTERS for b in LETTERS for c in LETTERS), "São 1990, ß"] * 3


@pytest.fixture(
    scope="module",
    params=[
        ("wordpiece", True),
        ("wordpiece", False),
        ("byte_bpe", False),
        ("unigram", True),
        ("unigram", False),
        ("letter_bpe", True),
        ("letter_bpe", False),
    ],
)
def encoder(tmp_path_factory, request):
    """Tokenizers of each kind, of simple words and punctuation."""
    kind, lowercase = request.param
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    settings = Tokenizer(
        kind=kind,
        vocab_size={"wordpiece": 96, "byte_bpe": 300, "unigram": 80, "letter_bpe": 96}[kind],
        lowercase=lowercase,
    )
    path.write_text(train(settings, TEXT).to_str())
    return Encoder(path, kind)


def random_questions(count, seed=0, longest=60):
    """Passages of random words with punctuation and odd spaces; the answer is any run of their characters."""
    noise = np.random.default_rng(seed)
    marks = ["", "", "", ".", ",", ")", "-B", "é", "☃"]
    for number in range(count):
        words = [
            "".join(noise.choice(list(LETTERS + "AÉ"), noise.integers(1, 6))) for _ in range(noise.integers(1, longest))
        ]
        words = [noise.choice(["", "", "("]) + word + noise.choice(marks) for word in words]
        context = "".join(word + noise.choice([" ", " ", "  ", "\n"]) for word in words)
        first = noise.integers(len(words))
        last = min(len(words) - 1, first + noise.integers(4))
        start, end = _places(context)[first][0], _places(context)[last][1]
        yield Question(f"q{number}", "ab " * noise.integers(1, 6), context, ((start, context[start:end]),))


def _places(context):
    found, place = [], 0
    for word in context.split():
        place = context.index(word, place)
        found.append((place, place + len(word)))
        place += len(word)
    return found


def inputs_of(rows, encoder, max_length=32, max_query=8, stride=6, layout="cls_sep", **kind):
    examples = Spans(**kind).read(rows, "made here")
    pieces = Pieces.of(examples.texts(), encoder)
    return SpanInputs(examples, pieces, encoder.vocabulary, max_length, max_query, stride, layout)


class TestWindows:
    @pytest.mark.parametrize(("max_length", "stride"), [(32, 6), (20, 128), (16, 3)])
    def test_cover_every_piece_and_hold_every_answer_that_fits(self, encoder, max_length, stride):
        inputs = inputs_of(list(random_questions(60)), encoder, max_length, 8, stride)
        assert inputs.sizes.max() <= max_length
        for number in range(len(inputs.examples)):
            mine = np.flatnonzero(inputs.of == number)
            text = 60 + inputs.examples.where[number]
            shown = [n for window in mine for n in range(inputs.begins[window], inputs.ends[window])]
            assert set(shown) == set(range(*inputs.pieces.bounds[text : text + 2]))
            first, last = inputs.answers[number]
            room = max_length - inputs.offsets[mine[0]] - 1
            if last - first < room // 2:
                assert (inputs.targets[mine] > 0).all(1).any()

    def test_with_cls_last_they_show_the_same_and_ask_for_the_same(self, encoder):
        """The rows of XLNet's released code, but for its order: there the passage comes first."""
        rows = list(random_questions(40))
        first, last = (inputs_of(rows, encoder, layout=layout) for layout in ("cls_sep", "cls_last"))
        every = np.arange(len(first))
        one, other = first.batch(every), last.batch(every)
        assert other.inputs.cls.tolist() == last.nulls.tolist() == (last.sizes[:, 0] - 1).tolist()
        assert (other.inputs.ids[every, last.nulls] == encoder.vocabulary.cls).all()
        moved = one.inputs.with_cls_last()
        assert torch.equal(other.inputs.ids, moved.ids)
        assert torch.equal(other.inputs.tables["segment"], moved.tables["segment"])
        for name in ("start", "end"):
            told, wanted = (example.targets[name].ids for example in (other, one))
            absent = wanted == 0
            assert torch.equal(told[absent], moved.cls[absent])
            assert torch.equal(told[~absent], wanted[~absent] - 1)
        assert absent.any()
        assert not absent.all()

    def test_are_those_of_run_squad(self, encoder):
        """Against the loop of `convert_examples_to_features`, where half a window is no shorter than the stride."""
        inputs = inputs_of(list(random_questions(40)), encoder, 40, 8, 6)
        expected = []
        for number in range(40):
            text = 40 + inputs.examples.where[number]
            begin, end = inputs.pieces.bounds[text : text + 2].tolist()
            room = 40 - 3 - min(8, np.diff(inputs.pieces.bounds)[number])
            start = 0
            while True:
                length = min(end - begin - start, room)
                expected.append((number, begin + start, begin + start + length))
                if start + length == end - begin:
                    break
                start += min(length, 6)
        assert list(zip(inputs.of.tolist(), inputs.begins.tolist(), inputs.ends.tolist(), strict=True)) == expected

    def test_rows_are_question_and_window(self, encoder):
        rows = [Question("1", "ab (cd)", "a b  c d e f g h i j", ((0, "a"),))]
        inputs = inputs_of(rows, encoder, 14, 4, 2)
        example = inputs.batch(np.arange(len(inputs)))
        ids, vocabulary = example.inputs.ids[0].tolist(), encoder.vocabulary
        asked = inputs.pieces.ids[:4].tolist()
        window = inputs.pieces.ids[inputs.begins[0] : inputs.ends[0]].tolist()
        assert ids == [vocabulary.cls, *asked, vocabulary.sep, *window, vocabulary.sep]
        assert example.inputs.tables["segment"][0].tolist() == [0] * 6 + [1] * (len(window) + 1)
        assert ids[inputs.offsets[0]] == window[0]

    def test_few_questions_bring_their_passages(self):
        rows = [Question(str(n), "a", f"c{n // 2}", ()) for n in range(6)]
        few = Spans(unanswerable=True).read(rows, "made").take(np.array([3, 5, 2]))
        assert (few.ids, few.contexts, few.where.tolist()) == (["3", "5", "2"], ["c1", "c2"], [0, 1, 0])

    def test_the_number_of_windows_is_estimated(self, encoder):
        inputs = inputs_of(list(random_questions(100)), encoder, 64, 8, 16)
        pieces = int(np.diff(inputs.pieces.bounds).sum())
        guess = Spans(doc_stride=16, max_query=8).items(100, pieces, FineTuning(max_length=64))
        assert guess == pytest.approx(len(inputs), rel=0.4)
        assert Spans().items(10, 200, FineTuning(max_length=384)) == 10


class TestTargets:
    def test_recover_the_answer(self, encoder):
        rows = list(random_questions(150))
        inputs = inputs_of(rows, encoder, 64, 8, 16)
        for number, row in enumerate(rows):
            assert inputs.text(number, *inputs.answers[number]) == row.answers[0][1]
            mine = np.flatnonzero(inputs.of == number)
            for window, (first, last) in zip(mine, inputs.targets[mine].tolist(), strict=True):
                shift = inputs.begins[window] - inputs.offsets[window]
                assert (first, last) == (0, 0) or tuple(inputs.answers[number] - shift) == (first, last)

    def test_answers_inside_words(self, encoder):
        context = "x (1990) y--São! z"
        for text in ("1990", "(1990", "São", "São!", "y", "(1990) y"):
            inputs = inputs_of([Question("1", "q", context, ((context.index(text), text),))], encoder, 64)
            assert inputs.text(0, *inputs.answers[0]) == text

    def test_are_those_of_improve_answer_span(self):
        """Against the released function, with whole words as the first guess, on words cut at punctuation only."""
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *".,()-!?"]
        noise, spelling = np.random.default_rng(1), Spelling(Vocabulary.of(pieces, "wordpiece"))
        for _ in range(200):
            word = "".join(noise.choice(list("abc.(-"), 7))
            ids = tuple(pieces.index(letter) for letter in word)
            start = int(noise.integers(7))
            end = int(noise.integers(start, 7)) + 1
            spans = spelling.characters(word, ids)
            ours = [n for n, (a, b) in enumerate(spans) if b > start and a < end]
            improved = next((s, e) for s in range(7) for e in range(6, s - 1, -1) if word[s : e + 1] == word[start:end])
            assert word[improved[0] : improved[1] + 1] == word[ours[0] : ours[-1] + 1]

    def test_windows_without_the_answer_point_at_cls(self, encoder):
        rows = [Question("1", "a", "b c d e f g h i j a b c d e f", ((28, "f"),)), Question("2", "a", "b c", ())]
        inputs = inputs_of(rows, encoder, 16, 4, 3, unanswerable=True)
        assert inputs.targets[0].tolist() == [0, 0]
        assert (inputs.targets[inputs.bounds[1] - 1] > 0).all()
        assert inputs.targets[-1].tolist() == [0, 0]


class TestSpelling:
    def test_characters_are_those_of_the_library(self, encoder):
        spelling, words = Spelling(encoder.vocabulary), " ".join(row.context for row in random_questions(30)).split()
        for word in [*words, "ÉÉ-1990", "(São)"]:
            found = encoder.fast.encode(word, add_special_tokens=False)
            assert spelling.characters(word, tuple(found.ids)) == found.offsets, word

    def test_a_word_that_cannot_be_spelt_is_taken_whole(self, encoder):
        other = encoder.vocabulary.pieces.index("a")
        assert Spelling(encoder.vocabulary).characters("xyz", (other, other)) == [(0, 3), (0, 3)]


def test_the_loss_is_the_mean_of_two_cross_entropies(encoder):
    inputs = inputs_of(list(random_questions(1)), encoder)
    example, right = inputs.batch(np.array([0])), torch.from_numpy(inputs.targets[0])
    outputs = torch.randn(*example.inputs.ids.shape, 2, generator=torch.Generator().manual_seed(0))
    assert torch.isclose(SpanHead(4).loss(outputs, example), F.cross_entropy(outputs[0].T, right.long()))
