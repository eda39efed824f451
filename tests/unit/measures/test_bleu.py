"""BLEU and chrF: those of sacrebleu's command, of any sentences, with the noise that a bootstrap has."""

import json
import subprocess
import sys

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.measures import bleu

_WORDS = [
    "ein", "der", "Mann,", "Hund.", "läuft", "T-Shirt", "„schläft“", "über", "die", "Straße:", "3,5", "km!", "Sie?",
]  # fmt: skip


@pytest.fixture(scope="module")
def text():
    noise = np.random.default_rng(0)
    references = [" ".join(noise.choice(_WORDS, size=noise.integers(1, 14))) for _ in range(300)]
    changed = [[word for word in line.split() if noise.random() < 0.8] for line in references]
    return [" ".join(noise.permuted(words[:2]).tolist() + words[2:]) for words in changed], references


def command(tmp_path, translations, references, metric):
    for name, lines in (("out", translations), ("reference", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    ran = [sys.executable, "-m", "sacrebleu", str(tmp_path / "reference"), "-i", str(tmp_path / "out"), "-m", metric]
    told = subprocess.run([*ran, "-w", "10", "-f", "json"], capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["bleu", "chrf"])
@pytest.mark.parametrize("some", [slice(None), slice(0, 1)])
def test_scores_and_signatures_are_those_of_the_command(tmp_path, text, metric, some):
    translations, references = (lines[some] for lines in text)
    found, told = bleu.counts(translations, references), command(tmp_path, translations, references, metric)
    assert getattr(bleu, metric)(getattr(found, metric).sum(axis=0)) == pytest.approx(told["score"], abs=1e-9)
    assert found.signatures[metric] == told["signature"]


@pytest.mark.parametrize(
    ("translation", "reference"),
    [
        ("", "ein Hund läuft."),
        ("nichts davon stimmt hier", "ein Hund läuft."),
        ("ein Hund", "ein Hund läuft über die Straße."),
        ("läuft ein Hund heute und morgen", "ein Hund läuft."),
        ("ein Hund läuft.", "ein Hund läuft."),
    ],
)
def test_single_sentences_score_as_the_package_scores_them(translation, reference):
    import sacrebleu

    found = bleu.counts([translation], [reference])
    wanted = sacrebleu.corpus_bleu([translation], [[reference]]).score
    assert bleu.bleu(found.bleu.sum(axis=0)) == pytest.approx(wanted)
    assert bleu.chrf(found.chrf.sum(axis=0)) == pytest.approx(sacrebleu.corpus_chrf([translation], [[reference]]).score)


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_what_sentences_add_has_the_mean_and_the_spread_of_a_bootstrap(text, metric):
    score, counts = getattr(bleu, metric), getattr(bleu.counts(*text), metric)
    each, number = bleu.influences(score, counts), len(counts)
    draws = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), size=3_000)
    assert each.mean() == pytest.approx(score(counts.sum(axis=0)))
    assert each.std() / number**0.5 == pytest.approx(score(draws @ counts).std(), rel=0.1)


def test_a_paired_bootstrap_is_of_the_same_sentences_in_both_systems(text):
    counts = bleu.counts(*text).bleu
    worse = bleu.counts([line.rpartition(" ")[0] for line in text[0]], text[1]).bleu
    found = bleu.paired_bootstrap(counts[None], worse[None])
    whole = bleu.bleu(counts.sum(axis=0)) - bleu.bleu(worse.sum(axis=0))
    assert found.mean() == pytest.approx(whole, rel=0.05)
    alone = bleu.paired_bootstrap(counts[None], 0 * worse[None] + worse[:1])
    assert found.std() < alone.std(), "what sentences give both systems alike drops out"
    assert (bleu.paired_bootstrap(counts[None], counts[None]) == 0).all()
    several = bleu.paired_bootstrap(np.stack([counts, worse]), worse[None])
    assert several == pytest.approx(found / 2)


@pytest.mark.parametrize(("translations", "references"), [(["a"], ["a", "b"]), ([], [])])
def test_other_numbers_of_lines_are_refused(translations, references):
    with pytest.raises(ConfigError, match="cannot be scored by"):
        bleu.counts(translations, references)
