"""Annotators: who says where the named entities and noun phrases of a sentence are.

spaCy's pipelines are trained on cased text; corpora are read with their capitals, which only tokenizers remove.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning_modules.batch import Tags
from lightning_modules.config import ConfigError

Spans = list[tuple[int, int]]  # first letter of each span of a sentence, and the letter after its last; in order
RULE = "capitalised"
NUMBERS = frozenset({"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})
_IDLE = {  # parts of pipelines that others do without
    "entities": ("tagger", "parser", "senter", "attribute_ruler", "lemmatizer", "morphologizer"),
    "noun_phrases": ("ner", "entity_ruler", "senter", "lemmatizer"),
}
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_LETTER = re.compile(r"\w")
_OPENS = frozenset("\"'“‘«(:;")
_I = re.compile(r"I(['’].*)?")


@dataclass(frozen=True)
class Annotator:
    """An annotator and the version by which what it made is kept.

    Attributes:
        version: Changes when the same sentences would have other spans.
        spans: Sentences -> the spans of each.
    """

    version: str
    spans: Callable[[Iterable[str]], Iterator[Spans]]


def annotator(name: str, tags: Tags) -> Annotator:
    """The annotator of that name: a pipeline of spaCy, or the rule for capitals.

    Raises:
        ConfigError: When spaCy or the pipeline is not installed, or the pipeline does not tag what is requested.
    """
    if name == RULE:
        return Annotator("1", lambda sentences: map(capitalised, sentences))
    return _pipeline(name, tags)


def capitalised(sentence: str) -> Spans:
    """The runs of words with a capital that begin neither the sentence nor a quotation, a rule for names.

    >>> text = "The old New York club met John's aunt, Mary; I saw it."
    >>> [text[start:end] for start, end in capitalised(text)]
    ['New York', "John's", 'Mary']
    """
    runs: Spans = []
    begin = first.start() if (first := _LETTER.search(sentence)) else 0
    after, joins = -1, False  # where the last word ended, and whether it belongs to a run
    for word in _WORD.finditer(sentence):
        start, end = word.span()
        name = word[0][0].isupper() and start != begin and not _I.fullmatch(word[0])
        name = name and _OPENS.isdisjoint(sentence[max(after, 0) : start])
        if name and joins and sentence[after:start] == " ":
            runs[-1] = (runs[-1][0], end)
        elif name:
            runs.append((start, end))
        after, joins = end, name
    return runs


def _pipeline(name: str, tags: Tags) -> Annotator:
    how = "python -m pip install 'ablations[annotate]'"
    try:
        import spacy  # pyright: ignore[reportMissingImports]  # of the extra 'annotate'
    except ImportError:
        rule = f", or set annotator to {RULE}, a rule for names" if tags == "entities" else ""
        raise ConfigError([f"{tags} by '{name}' need spaCy, which is not installed: {how}{rule}."]) from None
    try:
        nlp = spacy.load(_folder(name) or name)
    except OSError:
        here = ", ".join(spacy.util.get_installed_models()) or "none"
        text = f"spaCy has no pipeline '{name}': python -m spacy download {name}. Installed: {here}."
        raise ConfigError([text]) from None
    needed = ("ner", "entity_ruler") if tags == "entities" else ("parser",)
    if not any(part in nlp.pipe_names for part in needed):
        parts = ", ".join(nlp.pipe_names) or "no parts"
        text = f"the pipeline '{name}' does not tag {tags}: it has {parts}, and not {' or '.join(needed)}."
        raise ConfigError([text])
    nlp.select_pipes(disable=[part for part in nlp.pipe_names if part in _IDLE[tags]])
    version = f"{nlp.meta['name']} {nlp.meta['version']} by spaCy {spacy.__version__}"
    return Annotator(version, lambda sentences: (_found(doc, tags) for doc in nlp.pipe(sentences, batch_size=256)))


def _folder(name: str) -> Path | None:
    """The data of a pipeline inside an installed package of its name, whatever distribution that came with."""
    package = find_spec(name) if name.isidentifier() else None
    folders = package.submodule_search_locations if package else None
    found = (path.parent for folder in folders or () for path in sorted(Path(folder).glob(f"{name}-*/meta.json")))
    return next(found, None)


def _found(doc: Any, tags: Tags) -> Spans:
    """The entities that are no numbers, as SpanBERT's, or the noun phrases of a text."""
    if tags == "noun_phrases":
        return [(span.start_char, span.end_char) for span in doc.noun_chunks]
    return [(span.start_char, span.end_char) for span in doc.ents if span.label_ not in NUMBERS]
