"""A task of each further shape that a tiny model learns in seconds, of the words of the corpus ``text_file``."""

import numpy as np
import tokenizers
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from lightning_modules.batch import Encoded
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import SPECIALS, Vocabulary
from lightning_modules.tasks import FineTuning, Task
from lightning_modules.tasks.reading import passages
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.reading.windows import SpanInputs
from lightning_modules.tasks.shapes.choice import Choice, Question
from lightning_modules.tasks.shapes.coreference import Coreference, Mentioned
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.tasks.shapes.tagging import Sentence, Tagging


def letters(folder):
    """An encoder that gives a word a piece for each letter, and a control character none."""
    marks = "abcdefghijklmnopqrstuvwxyz().?,"
    pieces = [*SPECIALS, *marks, *(f"##{mark}" for mark in marks)]
    fast = tokenizers.Tokenizer(WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    fast.normalizer, fast.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    path = folder / "tokenizer.json"
    path.write_text(fast.to_str())
    return Encoder(path, "wordpiece")


def last_states(states):
    """What a head gets of a backbone whose last states these are."""
    return Encoded([states], states, states.new_zeros(0, states.shape[-1]))


def encoded(examples, shape, encoder, max_length):
    """The inputs of some examples."""
    pieces = Pieces.of(examples.texts(), encoder)
    return shape.inputs(examples, pieces, encoder.vocabulary, FineTuning(max_length=max_length))


def shown(inputs, encoder, *numbers):
    """The pieces of some items, row by row, without padding."""
    tokens = inputs.batch(np.array(numbers)).inputs
    rows = zip(tokens.ids.tolist(), tokens.real.tolist(), strict=True)
    return [" ".join(encoder.vocabulary.pieces[i] for i, real in zip(*row, strict=True) if real) for row in rows]


def windows(questions, layout="cls_sep"):
    """Questions about ten words, each read in two windows of seven that overlap by four."""
    pieces, count = [*SPECIALS, *"abcdefghij"], questions + 10
    rows = [passages.Question(str(n), "a", " ".join("abcdefghij"), ((4, "c d"),)) for n in range(questions)]
    bounds = np.array([*range(questions + 1), count])
    made = Pieces(np.array([5] * questions + [*range(5, 15)]), np.arange(count + 1), bounds)
    return SpanInputs(passages.SpanExamples.of(rows), made, Vocabulary.of(pieces, "wordpiece"), 11, 1, 3, layout)


COUNTS = {"train": 96, "dev": 32}


def _words(noise, low, high, most=5):
    return [f"w{number:02d}" for number in noise.integers(low, high, int(noise.integers(1, most)))]


def _noise(split):
    return np.random.default_rng([len(split), 7])


def names(split):
    """A word from w30 on is a name, of type X from w45 on; documents have four sentences."""
    noise = _noise(split)
    for number in range(COUNTS[split]):
        words = _words(noise, 0, 59, most=9)
        tags = ["O" if word < "w30" else "B-X" if word >= "w45" else "B-Y" for word in words]
        yield Sentence(tuple(words), tuple(tags), number // 4)


def options(split):
    """The option whose words are high is right."""
    noise = _noise(split)
    for _ in range(COUNTS[split]):
        label = int(noise.integers(3))
        found = [" ".join(_words(noise, 30, 59) if n == label else _words(noise, 0, 30)) for n in range(3)]
        yield Question(" ".join(_words(noise, 0, 59)), "w00", tuple(found), label)


def mentions(split):
    """The pronoun means the name that is high, and neither if both are low."""
    noise = _noise(split)
    for number in range(COUNTS[split]):
        label = int(noise.integers(3))
        places = [(30, 59) if n == label else (0, 30) for n in range(2)]
        parts = [_words(noise, *place, most=2)[0] for place in places]
        pronoun = "his" if noise.random() < 0.5 else "her"
        text, spans = "w01", []
        for part in (*parts, pronoun):
            text += " w02 "
            spans.append((len(text), len(text) + len(part)))
            text += part
        yield Mentioned(f"text-{number}", text, (spans[2], *spans[:2]), label)


def reading_task(unanswerable=False):
    """Passages of low words with a run of high ones, which is the answer; or without any."""

    def rows(split):
        noise = _noise(split)
        for number in range(COUNTS[split]):
            words = [f"w{n:02d}" for n in noise.integers(0, 40, noise.integers(6, 14))]
            place, size = int(noise.integers(len(words) - 2)), int(noise.integers(1, 3))
            marked = not (unanswerable and number % 2)
            if marked:
                words[place : place + size] = [f"w{n:02d}" for n in noise.integers(45, 59, size)]
            start, text = 4 * place, " ".join(words)
            answers = ((start, text[start : start + 4 * size - 1]),) if marked else ()
            yield passages.Question(f"{split}-{number}", "w41", text, answers)

    shape = Spans(doc_stride=6, max_query=4, unanswerable=unanswerable)
    return _task("toy_spans", shape, shape.usual, rows)


def _task(name, shape, metrics, rows):
    return Task(name, f"{name}?", "made here", shape, metrics, rows)


TOYS = {
    "toy_names": _task("toy_names", Tagging(("X", "Y")), ("entity_f1", "precision", "recall", "accuracy"), names),
    "toy_context": _task("toy_context", Tagging(("X", "Y"), context=True), ("entity_f1", "accuracy"), names),
    "toy_options": _task("toy_options", Choice(3, last=6), ("accuracy",), options),
    "toy_alone": _task("toy_alone", Choice(3, context=False), ("accuracy",), options),
    "toy_mentions": _task("toy_mentions", Coreference(), ("f1", "masculine_f1", "feminine_f1", "accuracy"), mentions),
}
