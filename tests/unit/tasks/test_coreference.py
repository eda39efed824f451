"""Pronouns and names: mentions in words and pieces, windows of long texts, scores, GAP's files."""

import numpy as np
import pytest
import torch

from lightning_modules.config import ConfigError
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.tasks.shapes.coreference import (
    ANSWER,
    MENTIONS,
    Coreference,
    Mentioned,
    MentionHead,
    words_of,
)
from tests.toy_shapes import encoded, last_states, shown

SHAPE = Coreference()
METRICS = tuple(SHAPE.measures)


def made(text, *mentions, label=0, name="t"):
    """A text whose mentions (pronoun, A, B) are the first places where they stand."""
    return Mentioned(name, text, tuple((text.index(m), text.index(m) + len(m)) for m in mentions), label)


def read(*rows):
    return SHAPE.read(rows, "made")


class TestMentions:
    def test_words_are_cut_at_mentions_and_white_space_does_not_matter(self):
        text = " Ann  (her\u00a0mom)\tsaw  O'Neil's."
        words, spans = words_of(text, made(text, "her", "Ann", "O'Neil").spans)
        assert words == ["Ann", "(", "her", "mom)", "saw", "O'Neil", "'s."]
        assert spans == [[2, 3], [0, 1], [5, 6]]

    def test_ends_are_those_of_the_mentions_pieces(self, encoder):
        examples = read(made("ab cd saw ef, then (his dog", "his", "ab cd", "ef", label=1))
        inputs = encoded(examples, SHAPE, encoder, 32)
        (row,) = (text.split() for text in shown(inputs, encoder, 0))
        found = [[row[end] for end in ends] for ends in inputs.ends[0].tolist()]
        assert found == [["h", "##s"], ["a", "##d"], ["e", "##f"]]
        example = inputs.batch(np.array([0]))
        assert example.targets[MENTIONS].where.tolist() == inputs.ends[0].ravel().tolist()
        assert example.targets[ANSWER].ids.tolist() == [1]

    def test_a_long_text_is_cut_around_its_mentions(self, encoder):
        before, after = " ".join("xyzxyzxyz"), " ".join("uvwuvwuvw")
        examples = read(made(f"{before} ab c his d {after}", "his", "ab", "d"))
        inputs = encoded(examples, SHAPE, encoder, 13)
        assert shown(inputs, encoder, 0) == ["[CLS] y z a ##b c h ##i ##s d u v [SEP]"]
        assert inputs.ends[0].tolist() == [[6, 8], [3, 4], [9, 9]]

    def test_a_name_too_far_away_is_read_at_the_first_position(self, encoder):
        far = " ".join("xyzxyzxyz")
        examples = read(made(f"ab {far} his d {far}", "his", "ab", "d"))
        inputs = encoded(examples, SHAPE, encoder, 10)
        assert inputs.ends[0, 1].tolist() == [0, 0]
        (row,) = (text.split() for text in shown(inputs, encoder, 0))
        assert [row[end] for end in inputs.ends[0, [0, 2]].ravel()] == ["h", "##s", "d", "d"]
        alone = encoded(read(made(f"ab {far} his {far} d", "his", "ab", "d")), SHAPE, encoder, 10)
        assert alone.ends[0, 1:].ravel().tolist() == [0] * 4
        assert alone.sizes.tolist() == [[10]]

    def test_a_mention_without_pieces_is_read_at_the_first_position(self, encoder):
        inputs = encoded(read(made("\x01 saw a and his d", "his", "\x01", "a")), SHAPE, encoder, 16)
        assert inputs.ends[0, 1].tolist() == [0, 0]


def test_the_head_by_hand(encoder):
    """Both names by the same layers, and neither at 0, so that names that change places change their scores."""
    head = MentionHead(4, dropout=0.5).eval()
    inputs = encoded(read(made("ab saw cd and his ef", "his", "ab", "cd", label=1)), SHAPE, encoder, 16)
    example = inputs.batch(np.array([0]))
    states = torch.randn(*example.inputs.ids.shape, 4)
    pronoun, *names = (states[0, ends].flatten() for ends in inputs.ends[0])
    scores = [head.output(torch.tanh(head.hidden(torch.cat([pronoun, name, pronoun * name])))) for name in names]
    outputs = head(last_states(states), example)
    assert torch.allclose(outputs[0], torch.cat([*scores, torch.zeros(1)]))
    assert torch.allclose(head.loss(outputs, example), -outputs.log_softmax(1)[0, 1])
    assert head.count(example) == 1


class TestScores:
    def test_as_the_official_scorer_counts(self):
        """Four texts, two questions each: by pronouns 2 masculine and 2 feminine."""
        rows = [
            made("x saw y and his z", pronoun, "x", "y", label=label, name=f"t{n}")
            for n, (pronoun, label) in enumerate([("his", 0), ("his", 2)])
        ] + [made("x saw y and her z", "her", "x", "y", label=label, name=f"t{label}b") for label in (1, 0)]
        found = SHAPE.score(np.array([0, 1, 1, 1]), read(*rows), METRICS)
        # masculine: one true positive, one false; feminine: one true, one false and one missed
        assert found.metrics == pytest.approx(
            {"f1": 4 / 7, "masculine_f1": 2 / 3, "feminine_f1": 1 / 2, "accuracy": 1 / 2}
        )
        assert found.predictions == {
            "t0": ["TRUE", "FALSE"], "t1": ["FALSE", "TRUE"], "t1b": ["FALSE", "TRUE"], "t0b": ["FALSE", "TRUE"]
        }  # fmt: skip
        assert unpack(found.kept["right"]).tolist() == [True, False, True, False]
        assert unpack(found.kept["answer"]).tolist() == [0, 1, 1, 1]

    def test_neither_everywhere_is_zero(self):
        examples = read(made("x saw y and his z", "his", "x", "y", label=2))
        assert SHAPE.score(np.array([2]), examples, METRICS).metrics == {
            "f1": 0.0, "masculine_f1": 0.0, "feminine_f1": 0.0, "accuracy": 1.0,
        }  # fmt: skip

    def test_simple_answers(self):
        dev = read(
            made("x saw y and his z", "his", "x", "y"),
            made("x and his z saw y", "his", "y", "x"),
            made("his z saw y and x", "his", "x", "y"),
        )
        train = read(*(made("x saw y and his z", "his", "x", "y", label=label) for label in (2, 2, 0)))
        found = SHAPE.baselines(train, dev)
        surface = found.pop("surface")
        assert set(surface.tolist()) <= {0, 2}, "only answers that were seen"
        assert {name: answers.tolist() for name, answers in found.items()} == {
            "majority": [2, 2, 2], "nearest": [1, 1, 1],
        }  # fmt: skip

    @pytest.mark.parametrize("sign", ["length", "place", "neighbour"])
    def test_the_surface_alone_may_give_the_answer_away(self, sign):
        """The name that is longer, comes first, or has a comma behind it."""
        texts = {
            "length": ("xxxx saw y and his z", "y saw xxxx and his z"),
            "place": ("xxxx saw y and his z", "xxxx and his z saw y"),
            "neighbour": ("xxxx , saw y and his z", "y saw xxxx , and his z"),
        }[sign]
        rows = [
            made(text, "his", *names, label=names.index("xxxx"))
            for text in texts
            for names in (("xxxx", "y"), ("y", "xxxx"))
        ]
        train, dev = read(*(row for row in rows for _ in range(5))), read(*rows)
        assert SHAPE.baselines(train, dev)["surface"].tolist() == [row.label for row in rows]

    def test_of_one_answer_the_surface_learns_that_answer(self):
        train = read(made("x saw y and his z", "his", "x", "y", label=1))
        assert SHAPE.baselines(train, train)["surface"].tolist() == [1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            made("x saw y and its z", "its", "x", "y"),
            r"example 0 of 'made' \(t\) .*'its'.* one of he",
        ),
        (Mentioned("t", "x saw his", ((6, 9), (0, 1), (20, 22)), 0), "has an empty mention"),
        (made("x saw y and his z", "his", "x", "y", label=3), "has the answer 3"),
    ],
)
def test_bad_texts_are_named(row, message):
    with pytest.raises(ConfigError, match=message):
        read(row)


HEADING = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL"
LINE = 'development-1\t"Ann met Eve; (she left.\tshe\t15\tAnn\t1\tTRUE\tEve\t9\tFALSE\thttp://a'


class TestGap:
    @pytest.fixture
    def path(self, home):
        path = home / "gap/gap-development.tsv"
        path.parent.mkdir()
        path.write_text(f"{HEADING}\n{LINE}\n")
        return path

    def test_its_official_form(self, path):
        examples = TASKS["gap"].examples("train")
        assert examples.items_for_pin() == [['" Ann met Eve ; ( she left.', [[6, 7], [1, 2], [3, 4]], 0]]
        assert (examples.names, examples.feminine.tolist()) == (["development-1"], [True])

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("\t15\t", "\t14\t", r"development\.tsv, line 2: the text at Pronoun-offset 14 is '\(sh', not 'she'"),
            ("\t15\t", "\t-1\t", r"line 2: Pronoun-offset is '-1', which is not a number"),
            ("\tAnn\t1", "\t\t1", r"line 2: the text at A-offset 1 is '', not ''"),
            (
                "\tFALSE",
                "\tTRUE",
                r"line 2: A-coref is TRUE, B-coref TRUE. .* at most one TRUE",
            ),
        ],
    )
    def test_malformed_lines_are_named(self, path, old, new, message):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(ConfigError, match=message):
            TASKS["gap"].examples("train")
