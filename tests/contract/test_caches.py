"""Every cache has a row in the tables of caches.md, and another argument is another file."""

import ast
import os
import re

import numpy as np
import pytest

from lightning_modules import cached
from lightning_modules.data import Data, open_store, pins, store
from lightning_modules.data.annotations import open_annotated, token_bytes
from lightning_modules.data.formats import FORMATS as CLASSES
from lightning_modules.data.formats.stream import shuffled
from lightning_modules.data.text import annotators, tokenizer
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.whole_words import stretches
from lightning_modules.data.word_vectors import WordVectors, word_vectors
from lightning_modules.interop import own_tokenizer
from lightning_modules.places import project
from lightning_modules.probing import parts
from lightning_modules.tasks import TASKS, validation
from lightning_modules.tasks import pins as task_pins
from lightning_modules.tasks.datasets import bigram_shift
from lightning_modules.tasks.measured_baselines import baselines, with_same_labels
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.zero_shot.stretches import chosen
from tests.own_rows import own

_FILES = {"kept", "kept_array", "kept_json", "write", "locked", "remember"}  # of `cached`, that only a cache calls
_MEMORY = {"cache", "cached", "lru_cache", "once", "once_per_version"}


def _named(node):
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "attr", getattr(node, "id", ""))


def _keeps(function):
    """Whether a function keeps something in a file of the cache, or what it has computed in memory."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    owners = {(getattr(call.func.value, "id", ""), call.func.attr) for call in calls}
    in_file = not owners.isdisjoint(("cached", name) for name in _FILES)
    in_memory = not owners.isdisjoint({("functools", "cache"), ("functools", "lru_cache")})
    return in_file or in_memory or not _MEMORY.isdisjoint(map(_named, function.decorator_list))


def _functions(node, within=""):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield within + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{within}{child.name}.")
        elif not isinstance(child, ast.expr):
            yield from _functions(child, within)


def _rows():
    """Every function that the tables of caches name."""
    text = (project() / "tests" / "contract" / "caches.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [name for row in rows for name in re.findall(r"`([\w./]+: [\w.]+)`", row)]


def test_every_cache_has_a_row():
    found = set()
    for package in ("ablations", "lightning_modules"):
        for path in (project() / package).rglob("*.py"):
            if path != project() / "lightning_modules" / "cached.py":
                place = path.relative_to(project()).as_posix()
                tree = ast.parse(path.read_text(encoding="utf-8"))
                found |= {f"{place}: {name}" for name, function in _functions(tree) if _keeps(function)}
    rows = _rows()
    assert len(rows) == len(set(rows))
    assert found == set(rows)


class _Asked(Exception):
    """Where something would be kept."""


def _is_made_by_the_project(name, folder, monkeypatch):
    """Whether `ablations clean --all` takes a file of the cache for what the project made."""
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("")
    with monkeypatch.context() as patch:
        patch.setenv("ABLATIONS_CACHE", str(folder))
        return cached.contents()[1] == []


@pytest.fixture
def place(shared_cache, monkeypatch, tmp_path_factory):
    """Gives the file of the cache that a call keeps its result in, of those with some text in their path."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(shared_cache))
    kept = cached.kept

    def place(text, call):
        def asked(path, make, read):
            if text in str(path.relative_to(shared_cache)):
                raise _Asked(path)
            return kept(path, make, read)

        with monkeypatch.context() as patch:
            patch.setattr(cached, "kept", asked)
            with pytest.raises(_Asked) as caught:
                call()
        path = caught.value.args[0]
        alone = tmp_path_factory.mktemp("alone")
        assert _is_made_by_the_project(path.relative_to(shared_cache), alone, monkeypatch)
        return path

    return place


def _differ(places):
    """The first, and each with one argument changed: all have places of their own."""
    assert len(set(places)) == len(places)


def _written(folder, documents):
    """Writes a text of two hundred words and returns the name of the corpus."""
    noise = np.random.default_rng(0)
    words = ["".join(letters) for letters in noise.choice(list("abcdefghij"), (200, 4))]
    lines = [[" ".join(noise.choice(words, noise.integers(4, 9))) for _ in range(12)] for _ in range(documents)]
    (folder / "corpus.txt").write_text("\n\n".join(".\n".join(map(str.capitalize, part)) + "." for part in lines))
    return f"text:{folder}/*.txt"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Two corpora, of other texts."""
    return [_written(tmp_path_factory.mktemp(f"corpus{count}"), count) for count in (60, 61)]


def _data(name, **changes):
    given = {"kind": "wordpiece", "vocab_size": 64, "lowercase": True} | changes
    return Data(corpora=(name,), tokenizer=tokenizer.Tokenizer(**given))


@pytest.fixture
def texts(names):
    """A text and its tokenizer, and the same with one of them changed."""
    kinds = [{}, {"kind": "unigram"}, {"vocab_size": 66}, {"lowercase": False}]
    return [_data(names[0], **changes) for changes in kinds] + [_data(names[1])]


def test_corpora(place, tmp_path):
    name = _written(tmp_path, 3)
    file = tmp_path / "corpus.txt"
    states = [place("fingerprints", lambda: pins.expected(name))]
    text, before = file.read_bytes(), file.stat()
    file.write_bytes(text.swapcase())
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a copy with its times is
    states.append(place("fingerprints", lambda: pins.expected(name)))
    file.write_bytes(text + b"\n\nOne more.")
    states.append(place("fingerprints", lambda: pins.expected(name)))
    _differ(states)


def test_made_text(place, monkeypatch):
    monkeypatch.setattr(pins, "pinned", dict)
    states = [place("fingerprints", lambda n=name: pins.expected(n)) for name in ("made:order", "made:order,no-topic")]
    monkeypatch.setattr("lightning_modules.data.corpora.made.RECIPE", -1)
    _differ([*states, place("fingerprints", lambda: pins.expected("made:order"))])


def test_tokenizers(place, texts):
    _differ([place("tokenizers", lambda data=data: store.tokenizer_file(data)) for data in texts])


def test_tokenizers_of_others(place):
    _differ([place("tokenizers", lambda text=text: own_tokenizer._cached(text)) for text in ("{}", "[]")])


def test_stores_and_what_lies_in_them(place, texts, monkeypatch):
    stores = [open_store(data, split) for data in texts for split in ("train", "heldout")]
    _differ([one.folder for one in stores])
    first, second = stores[:2]
    assert place("shuffled", lambda: shuffled(first)).parent == first.folder
    assert place("bytes-", lambda: token_bytes(texts[0], "train", first)).parent == first.folder
    found = []
    for version, tags in (("1", "entities"), ("2", "entities"), ("1", "noun_phrases")):
        by = annotators.Annotator(version, lambda sentences: ([] for _ in sentences))
        monkeypatch.setattr("lightning_modules.data.annotations.annotator", lambda name, tags, by=by: by)
        for name in ("one", "other"):
            reads = [(name, tags)]
            found.append(place("marks-", lambda reads=reads: open_annotated(texts[0], "train", reads)))
    _differ(found)
    vectors = [(first, WordVectors(), 8, 0), (second, WordVectors(), 8, 0), (first, WordVectors(window=3), 8, 0),
               (first, WordVectors(), 4, 0), (first, WordVectors(), 8, 1)]  # fmt: skip
    _differ([place("word-vectors", lambda a=arguments: word_vectors(*a)) for arguments in vectors])


_PAIRS = {"kind": "segment_pairs"}
FORMATS = {
    "sequences-": [
        {}, {"sequence_length": 24}, {"break_mode": "documents"}, {"short_sequences": 0.2},
    ],
    "blocks-": [
        {"break_mode": "none", "frame": "none"}, {"break_mode": "none", "frame": "document_ends"},
        {"break_mode": "none", "frame": "none", "sequence_length": 24},
    ],
    "pairs-": [
        _PAIRS, {**_PAIRS, "negatives": "swapped"}, {**_PAIRS, "pairing": "matched"}, {**_PAIRS, "duplicates": 2},
        {**_PAIRS, "short_fraction": 0.3}, {**_PAIRS, "short_fraction": 0.3, "short_documents": True},
        {**_PAIRS, "negatives": "swapped", "lone_negatives": True}, {"kind": "sentence_pairs"},
        {**_PAIRS, "sequence_length": 24},
    ],
    "asked-": [{**_PAIRS, "pairing": "matched"}, {**_PAIRS, "pairing": "matched", "negatives": "swapped"}],
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_arrangements(name, place, texts):
    text, found = open_store(texts[0], "train"), []
    for changes in FORMATS[name]:
        form = CLASSES[changes.get("kind", "full_sentences")](**({"sequence_length": 16} | changes))
        for count in (9, 10) if name == "asked-" else (9,):
            arranged = {
                "pairs-": lambda store, f=form: f.arrange_whole(store),
                "asked-": lambda store, f=form, n=count: f.arrange_asked(store, n),
            }
            found.append(place(name, lambda call=arranged.get(name, form.arrange): call(text)))
    _differ(found)


def test_baselines_of_text(place, tiny, names):
    changes = [
        {}, {"evaluation.sequences": 8}, {"format.sequence_length": 12}, {"data.corpora": names[:1]},
        {"objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"},
    ]  # fmt: skip
    modules = [tiny.but(**changed).data_module(0) for changed in changes]
    targets = [("mlm",), ("mlm",), ("mlm",), ("mlm",), ("next",)]
    _differ([place("baseline-", lambda m=m, t=t: m.baselines(t)) for m, t in zip(modules, targets, strict=True)])


def test_methods_on_pairs(place, tiny, names):
    pairs = tiny.but(
        **{
            "format.kind": "segment_pairs",
            "data.corpora": names[:1],
            "format.sequence_length": 40,
            "model.max_positions": 40,
        }
    )
    changed = [pairs, pairs.but(**{"format.sequence_length": 32}),
               pairs.but(**{"evaluation.pairing": "matched"}), pairs.but(**{"format.excerpt": "first"})]  # fmt: skip
    asked = [(system.data_module(0), "random", 20) for system in changed]
    asked += [(asked[0][0], "swapped", 20), (asked[0][0], "random", 10)]
    _differ([place("pair-methods-", lambda m=m, a=arguments: m.pair_scores(*a)) for m, *arguments in asked])


def test_stretches_of_text(place, texts):
    asked = [(texts[0], 16), (texts[-1], 16), (texts[0], 24)]
    _differ([place("stretches", lambda a=arguments: stretches(*a, 9)) for arguments in asked])
    _differ([place("zero-shot", lambda data=data: chosen(data)) for data in (texts[0], texts[-1])])
    assert place("zero-shot", lambda: chosen(texts[1])) == place("zero-shot", lambda: chosen(texts[0]))


def test_probes(place):
    _differ([place("probes", lambda a=(name, key): parts.kept(*a, None)) for name in "ab" for key in (1, 2)])


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Gives the row of a task of one's own."""
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    lines = [f'{{"text": "a {n} b", "label": "{("no", "yes")[n % 2]}"}}\n' for n in range(60)]
    (tmp_path / "mine.jsonl").write_text("".join(lines))

    def mine(labels=("no", "yes"), **changes):
        monkeypatch.setitem(TASKS, "mine", own("mine", "Mine?", Texts(labels), train="mine.jsonl", **changes))
        return "mine"

    return mine


ROWS = [{}, {"held_out": 0.3}, {"labels": ("yes", "no")}, {"labels": ("no", "yes", "both")}]
METRICS = [*ROWS, {"metrics": ("accuracy", "f1")}]


def test_fingerprints_of_tasks(place, mine):
    _differ([place("fingerprints", lambda row=row: task_pins.found(TASKS[mine(**row)])) for row in ROWS])


def test_parts_of_training_examples(place, mine):
    asked = [(row, 0.25) for row in ROWS] + [({}, 0.5)]
    _differ([place("validation", lambda a=a: validation.examples(mine(**a[0]), "train", a[1])) for a in asked])


def test_scores_without_a_network(place, mine):
    whole = [place("task-baselines", lambda a=a: baselines(mine(**a))) for a in METRICS]
    whole.append(place("task-baselines", lambda: baselines(mine(), 0.25)))
    asked = [(row, None, 20, 0) for row in METRICS] + [({}, 0.25, 20, 0), ({}, None, 21, 0), ({}, None, 20, 1)]
    few = [place("task-baselines", lambda a=a: with_same_labels(mine(**a[0]), *a[1:])) for a in asked]
    _differ(whole + few)


def test_pieces(place, texts):
    encoders = [Encoder(store.tokenizer_file(data), data.tokenizer.kind) for data in texts]
    asked = [(["a cat"], encoder) for encoder in encoders] + [(["a", "cat"], encoders[0]), (["cat a"], encoders[0])]
    _differ([place("pieces", lambda a=a: Pieces.of(*a)) for a in asked])


def test_made_tasks(place, names, monkeypatch):
    found = []
    for corpus, size in ((names[0], 9), (names[1], 9), (names[0], 8)):
        monkeypatch.setattr(bigram_shift, "_CORPUS", corpus)
        monkeypatch.setattr(bigram_shift, "_SIZES", {"train": size, "dev": 7})
        found += [place("tasks", lambda split=split: bigram_shift.rows(split)) for split in ("train", "dev")]
    assert found[1] == found[5]
    _differ(found[:5])
