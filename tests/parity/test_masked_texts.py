"""A text with masks has the same ids everywhere: in training's corruption, in `fill-mask`, and in transformers."""

import itertools
import random
import re

import pytest
import torch
from transformers import AutoTokenizer, pipeline

from lightning_modules import interop
from lightning_modules.analysis.joint_filling import fill_jointly
from lightning_modules.analysis.probes import fill_mask, masked
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.systems import SYSTEMS

SIZE = 400
KINDS = {
    "wordpiece": ("bert_base", Tokenizer(kind="wordpiece", vocab_size=SIZE)),
    "byte_bpe": ("roberta_base", Tokenizer(kind="byte_bpe", vocab_size=SIZE, lowercase=False)),
    "byte_bpe, lower-cased": ("roberta_base", Tokenizer(kind="byte_bpe", vocab_size=SIZE)),
    "unigram": ("albert_base", Tokenizer(kind="unigram", vocab_size=SIZE)),
    "unigram, cased": ("albert_base", Tokenizer(kind="unigram", vocab_size=SIZE, lowercase=False)),
    "unigram, no segments": ("roberta_base", Tokenizer(kind="unigram", vocab_size=SIZE)),
    "letter_bpe": ("bert_base", Tokenizer(kind="letter_bpe", vocab_size=SIZE)),
}
SPACED = [name for name in KINDS if name.startswith(("byte_bpe", "unigram"))]
AROUND = ["{}", "{}", "{}", "{},", "{};", '"{}"', "({})", "({}),", "{}'s", "'{}'", "{}-{}", "{}/{}", "\u201c{}\u201d",
          "[{}]", "{}...", "{}:", "\u2014{}\u2014", "caf\u00e9-{}", "{}\u2019s", "{}%", "${}"]  # fmt: skip
ENDS = [".", "!", "?", '."', "?)", "", " .", "\u3002", "..."]


def sentences():
    """1,000 sentences of made words between signs."""
    draws = random.Random(0)
    words = sorted({"".join(draws.choices("aeiourstlnmdgk", k=draws.randint(1, 7))) for _ in range(300)})
    found = []
    for _ in range(1000):
        parts = [form.format(*draws.choices(words, k=2)) for form in draws.choices(AROUND, k=draws.randint(3, 9))]
        found.append((" ".join(parts) + draws.choice(ENDS)).replace("a", "A", 1))
    return found


@pytest.fixture(scope="module", params=KINDS)
def exported(request, tmp_path_factory):
    """The kind's name, its tokenizer, a model with random weights, and the folder that both are written to."""
    return made(request.param, tmp_path_factory.mktemp("exported"))


def made(name, folder):
    base, settings = KINDS[name]
    path = folder / "tokenizer.json"
    path.write_text(train(settings, sentences()).to_str(), encoding="utf-8")
    shape = {"model.num_layers": 1, "model.hidden_size": 32, "model.num_heads": 4, "model.max_positions": 128,
             "format.sequence_length": 128, "model.init_std": 0.3, "data.tokenizer": settings}  # fmt: skip
    same = {"albert_base": {"model.embedding_size": 12, "objectives.mlm.activation": "gelu_tanh"},
            "roberta_base": {"objectives.mlm.norm_eps": 1e-5}, "bert_base": {}}  # fmt: skip
    system = SYSTEMS[base].but(**shape, **same[base])
    module = system.build(0).eval()
    interop.write(interop.of_run(system, module.state_dict()), folder / "out", path)
    return name, Encoder(path, settings.kind), module, folder / "out"


def hidden(encoder, sentence):
    """The sentence with each of its words hidden that is whole pieces: the text, and what training shows of it."""
    ids, bounds, _ = encoder.by_word([sentence])
    start = 0
    for number, word in enumerate(sentence.split(" ")):
        first, last = bounds[number], bounds[number + 1]
        offsets = encoder.fast.encode(word, add_special_tokens=False).offsets
        for match in re.finditer(r"[a-zA-Z]+", word):
            a, b = match.span()
            inside = [n for n, (begin, end) in enumerate(offsets) if begin < b and end > a]
            if not inside or offsets[inside[0]][0] < a or offsets[inside[-1]][1] > b:
                continue  # a piece has letters of the word and signs
            if inside[0] == 1 and a == 0:
                inside.insert(0, 0)  # the space before it, a piece of its own
            shown = [*ids[: first + inside[0]], encoder.vocabulary.mask, *ids[first + inside[-1] + 1 :]]
            yield sentence[: start + a] + "[MASK]" + sentence[start + b :], [int(n) for n in shown]
        start += len(word) + 1
        assert last - first == len(offsets)


def test_a_mask_at_every_place(exported):
    """At the start, in the middle, before each sign, in quotes: wherever whole pieces were hidden."""
    _, encoder, _, folder = exported
    theirs = AutoTokenizer.from_pretrained(folder)
    cases = [case for sentence in sentences() for case in hidden(encoder, sentence)]
    assert len(cases) > 3000
    assert len({text[text.index("[MASK]") + 6 :][:1] for text, _ in cases}) > 12
    for text, wanted in cases:
        assert masked(text, encoder) == wanted, text
    found = theirs([text for text, _ in cases], add_special_tokens=False)["input_ids"]
    assert found == [wanted for _, wanted in cases]


RUNS = {  # of masks -> what a text without them holds there
    "[MASK] [MASK], so [MASK].": "{0} {0}, so {0}.",
    "([MASK] [MASK])": "({0} {0})",
    " [MASK]  [MASK]": "{0} {0}",
    '"[MASK]" and [MASK]': '"{0}" and {0}',
    "``[MASK]'' so": "``{0}'' so",  # which ALBERT's normaliser makes quotation marks of
}


@pytest.mark.parametrize("text", RUNS)
def test_several_masks(exported, text):
    """Each in the place of a word; a word of one letter is one piece, but for the space before it."""
    _, encoder, _, folder = exported
    vocabulary, ids = encoder.vocabulary, masked(text, encoder)
    assert AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"] == ids
    whole = [vocabulary.pieces[n] for n in encoder([RUNS[text].format("k")])[0]]
    spaces = {"k", "k</w>", "\u0120k", "\u2581k"}
    assert ["[MASK]" if piece in spaces else piece for piece in whole] == [vocabulary.pieces[n] for n in ids]


def test_masks_that_touch(exported):
    _, encoder, _, folder = exported
    ids = masked("so [MASK][MASK]", encoder)
    assert ids == masked("so [MASK] [MASK]", encoder)
    assert AutoTokenizer.from_pretrained(folder)("so [MASK][MASK]", add_special_tokens=False)["input_ids"] == ids


def test_other_spellings_are_text(exported):
    _, encoder, _, folder = exported
    ids = encoder(["so [mask], [Mask] mask."])[0].tolist()
    assert masked("so [mask], [Mask] mask.", encoder) == ids
    assert (
        AutoTokenizer.from_pretrained(folder)("so [mask], [Mask] mask.", add_special_tokens=False)["input_ids"] == ids
    )


@pytest.mark.parametrize("name", SPACED)
def test_letters_after_a_mask_continue_its_word(name, tmp_path):
    _, encoder, _, folder = made(name, tmp_path)
    ids = masked("so un[MASK]ed", encoder)
    left, right = "".join(encoder.vocabulary.pieces[n] for n in ids).split("[MASK]")
    assert right == "ed"
    assert left == "".join(encoder.vocabulary.pieces[n] for n in encoder(["so un"])[0])
    assert AutoTokenizer.from_pretrained(folder)("so un[MASK]ed", add_special_tokens=False)["input_ids"] == ids


def test_the_pipeline_fills_as_fill_mask_does(exported):
    _, encoder, module, folder = exported
    theirs = pipeline("fill-mask", model=str(folder), device="cpu")
    for text in ("the [MASK].", '[MASK], "not" [MASK]', 'he said: "[MASK]" (and [MASK]\'s)!', "[MASK] is"):
        shown = theirs.preprocess(text)["input_ids"][0].tolist()
        assert shown == [2, *masked(text, encoder), 3]
        with torch.no_grad():
            found = theirs(text, top_k=5)
        wanted = fill_mask(module, encoder, text, 5)
        for fillings, answers in zip(wanted, found if text.count("[MASK]") > 1 else [found], strict=True):
            assert [encoder.vocabulary.pieces.index(f.piece) for f in fillings] == [a["token"] for a in answers]
            assert [f.probability for f in fillings] == pytest.approx([a["score"] for a in answers], rel=1e-3)


def test_two_masks_are_filled_jointly_where_they_stand(exported):
    """One after the other gives what `fill_mask` gives once the first is spelt out."""
    _, encoder, module, _ = exported
    text = 'so [MASK], "[MASK]".'
    both = fill_mask(module, encoder, text, SIZE)
    for pair in itertools.islice(fill_jointly(module, encoder, text, 2), 2):
        alone = [{f.piece: f.probability for f in side}[piece] for side, piece in zip(both, pair[:2], strict=True)]
        assert pair.independent == pytest.approx(alone[0] * alone[1], rel=1e-4)


def test_texts_without_masks_are_read_as_before(exported):
    """Pairs and white space of any kind too; what comes back from the folder is the same tokenizer."""
    name, encoder, _, folder = exported
    theirs, some = AutoTokenizer.from_pretrained(folder), sentences()[:100]
    ids, counts = encoder(some)
    assert list(itertools.chain(*theirs(some, add_special_tokens=False)["input_ids"])) == ids.tolist()
    first, second = ids[: counts[0]].tolist(), ids[counts[0] : counts[:2].sum()].tolist()
    assert theirs(*some[:2])["input_ids"] == [2, *first, 3, *second, 3]
    assert theirs(some[0].split(" "), is_split_into_words=True, add_special_tokens=False)["input_ids"] == first
    if not name.startswith("byte_bpe"):  # for which white space is text
        loose = "  " + some[0].replace(" ", " \t\n ") + "\u00a0 "
        assert theirs(loose, add_special_tokens=False)["input_ids"] == first
    family = {"bert_base": "bert", "roberta_base": "roberta", "albert_base": "albert"}[KINDS[name][0]]
    back = interop.own_encoder(folder, family, SIZE)
    assert back(some)[0].tolist() == ids.tolist()
    assert masked('the [MASK], "[MASK]".', back) == masked('the [MASK], "[MASK]".', encoder)
