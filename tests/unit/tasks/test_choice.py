"""Questions with options: rows, truncation, scores, word baselines, and the files of each data set."""

import json

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.baselines.lexical import by_words
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.tasks.shapes.choice import RIGHT, Choice, Question
from tests.toy_shapes import encoded, shown

PAIR = Choice(2)


class TestRows:
    def test_a_row_an_option_in_their_order(self, encoder):
        examples = PAIR.read([Question("a b", "c", ("d", "e f"), 1), Question("g", "", ("h", "i"), 0)], "made")
        inputs = encoded(examples, PAIR, encoder, 16)
        assert shown(inputs, encoder, 1, 0) == [
            "[CLS] g [SEP] h [SEP]", "[CLS] g [SEP] i [SEP]", "[CLS] a b [SEP] c d [SEP]", "[CLS] a b [SEP] c e f [SEP]"
        ]  # fmt: skip
        example = inputs.batch(np.array([1, 0]))
        assert example.targets[RIGHT].ids.tolist() == [1, 0, 0, 1]
        assert example.targets[RIGHT].where.tolist() == [0, 8, 16, 24]
        assert example.inputs.tables["segment"][3].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
        assert inputs.sizes.tolist() == [[7, 8], [5, 5]]

    def test_pairs_are_cut_as_berts(self, encoder):
        examples = PAIR.read([Question("abcdef", "", ("hij", "abcdefghij"), 0)], "made")
        found = shown(encoded(examples, PAIR, encoder, 10), encoder, 0)
        assert found == ["[CLS] a ##b ##c ##d [SEP] h ##i ##j [SEP]", "[CLS] a ##b ##c ##d [SEP] a ##b ##c [SEP]"]

    def test_question_and_option_keep_their_last_pieces_and_the_context_its_first(self, encoder):
        shape = Choice(2, last=4)
        examples = shape.read([Question("a b c d e f g", "p q r s", ("t", "u v w"), 0)], "made")
        found = shown(encoded(examples, shape, encoder, 12), encoder, 0)
        assert found == ["[CLS] a b c d e [SEP] q r s t [SEP]", "[CLS] a b c d e [SEP] s u v w [SEP]"]
        short = shown(encoded(examples, shape, encoder, 8), encoder, 0)
        assert short == ["[CLS] a b c [SEP] s t [SEP]", "[CLS] a b c [SEP] v w [SEP]"]

    def test_hidden_contexts_are_hidden_from_texts_and_pins_too(self, encoder):
        alone = Choice(2, context=False)
        rows = [Question("secret", "", ("d", "e f g h i j a b"), 1)]
        examples = alone.read(rows, "made")
        assert "secret" not in json.dumps([examples.items_for_pin(), examples.texts()])
        found = shown(encoded(examples, alone, encoder, 8), encoder, 0)
        assert found == ["[CLS] d [SEP]", "[CLS] e f g h i j [SEP]"]
        kept = shown(encoded(examples, Choice(2, last=4, context=False), encoder, 8), encoder, 0)
        assert kept[1] == "[CLS] g h i j a b [SEP]"

    def test_blanks_are_filled_where_the_shape_says_so(self):
        row = Question("a", "He is _ , she _ .", ("tall", "old"), 0)
        assert Choice(2, blank=True).read([row], "made").texts()[1] == "He is tall , she tall ."
        assert PAIR.read([row], "made").texts()[1] == "He is _ , she _ . tall"


class TestScores:
    def test_accuracy_of_all_and_of_groups(self):
        rows = [Question("a", "", ("b", "c"), n % 2, group) for n, group in enumerate(["middle", "high", "high"])]
        examples = PAIR.read(rows, "made")
        answers = PAIR.answers([np.array([1.0, 0]), np.array([1.0, 0]), np.array([1.0, 1.0])], None)
        found = PAIR.score(answers, examples, ("accuracy", "middle_accuracy", "high_accuracy"))
        assert found.metrics == pytest.approx({"accuracy": 2 / 3, "middle_accuracy": 1, "high_accuracy": 0.5})
        assert unpack(found.kept["answer"]).tolist() == [0, 0, 0]
        assert unpack(found.kept["right"]).tolist() == [True, False, True]

    def test_the_option_most_like_the_question_is_chosen(self):
        dev = PAIR.read(
            [Question("the cat sat", "what sat?", ("a dog", "the cat"), 1), Question("x", "y", ("b", "c"), 1)], "dev"
        )
        found = PAIR.baselines(PAIR.read([Question("the cat sat dog", "", ("b", "c"), 1)] * 3, "train"), dev)
        assert found["majority"].tolist() == [1, 1]
        assert found["tfidf"].tolist() == [1, 0], "the first where none is like it"

    def test_without_context_words_of_right_options_are_learnt(self):
        alone = Choice(2, context=False)
        rows = [Question("", "", ("it does not rain", "it rains")[:: 1 - 2 * (n % 2)], n % 2) for n in range(12)]
        train = alone.read(rows, "train")
        dev = alone.read([Question("", "", ("he sings", "he does not sing"), 1)], "dev")
        assert by_words(train, dev).tolist() == [1]


EXAM = {
    "article": "A  cat\nsat.", "id": "middle1.txt", "questions": ["What sat?", "It  _  ."],
    "options": [["a", "b", "c", "d"], ["sat", "ran", "ate", "hid"]], "answers": ["D", "A"],
}  # fmt: skip
SWAG = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    '0,v1,1,"A man ""X"", sits. He",A man sits.,He,gold,stands.,"runs, fast.",""" no ""","eats.",1\n'
)
COPA = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE copa-corpus SYSTEM "copa.dtd">
<copa-corpus version="1.0">
{items}
</copa-corpus>"""
ITEM = '<item id="{}" asks-for="{}" most-plausible-alternative="{}"><p>It fell.</p><a1>It broke.</a1><a2>{}</a2></item>'
HEADING = "#id\twarrant0\twarrant1\tcorrectLabelW0orW1\treason\tclaim\tdebateTitle\tdebateInfo"


@pytest.fixture
def folder(home):
    """A folder of each data set in its official form."""
    items = [
        ITEM.format(number, "effect", 1, "It rose.") for number in (1, 2, 4, 5, 1001, 1002, 1004, 1005)
    ] + [ITEM.format(3, "cause", 2, "Ann let go.")]  # fmt: skip
    content = {
        "race/train.middle.jsonl": json.dumps(EXAM) + "\n",
        "race/train.high.jsonl": json.dumps(EXAM | {"article": "B."}) + "\n",
        "swag/train.csv": SWAG,
        "copa/balanced-copa-dev-all.xml": COPA.format(items="\n".join(items)),
        "arct/train-full.txt": f'{HEADING}\n7_A\tno "rain\train\t1\tIt is wet.\tIt rains\tRain?\tDoes it?\n',
        "arct/dev-adv-negated.csv": (
            f'{HEADING}\tadversarial\n7_A\t"no ""rain"""\train\t1\tIt is wet.\tIt rains\tRain?\tDoes it?\tFalse\n'
            '7_A-adversarial\t"no ""rain"""\train\t0\tIt is wet.\tIt is dry\tRain?\tDoes it?\tTrue\n'
        ),
    }
    for name, text in content.items():
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    return home


class TestFiles:
    def test_race(self, folder):
        examples = TASKS["race"].examples("train")
        assert examples.groups.tolist() == ["middle"] * 2 + ["high"] * 2
        assert examples.labels.tolist() == [3, 0, 3, 0]
        assert examples.items_for_pin()[0] == ["A cat sat.", [f"What sat? {option}" for option in "abcd"], 3]
        assert examples.items_for_pin()[1][1][0] == "It sat ."
        assert len(TASKS["race_high"].examples("train")) == 2

    def test_swag(self, folder):
        (item,) = TASKS["swag"].examples("train").items_for_pin()
        assert item == ["A man sits.", ["He stands.", "He runs, fast.", 'He " no "', "He eats."], 1]

    def test_copa_keeps_mirrored_pairs_on_one_side(self, folder):
        train, dev = (TASKS["copa"].examples(split) for split in ("train", "dev"))
        assert (len(train), len(dev)) == (7, 2)
        assert dev.items_for_pin() == [["It fell.", ["so It broke.", "so It rose."], 0]] * 2
        assert train.items_for_pin()[-1] == ["It fell.", ["because It broke.", "because Ann let go."], 1]
        assert TASKS["copa"].own_split

    def test_arct_and_its_controls(self, folder):
        assert TASKS["arct"].examples("train").items_for_pin() == [["It rains It is wet.", ['no "rain', "rain"], 1]]
        assert TASKS["arct_warrants"].examples("train").items_for_pin() == [["", ['no "rain', "rain"], 1]]
        one, other = TASKS["arct_adversarial"].examples("dev").items_for_pin()
        assert one == ["It rains It is wet.", ['no "rain"', "rain"], 1]
        assert other == ["It is dry It is wet.", ['no "rain"', "rain"], 0]

    @pytest.mark.parametrize(
        ("file", "old", "new", "message"),
        [
            ("race/train.high.jsonl", '["D", "A"]', '["D", "E"]', r"high\.jsonl, line 1: the answer 'E'"),
            ("race/train.high.jsonl", '["D", "A"]', '["D"]', r"line 1: 2 questions, 2 options, 1 answers"),
            ("race/train.high.jsonl", '"article"', '"text"', r"line 1: has no article\. It has text, id"),
            ("race/train.high.jsonl", '["D", "A"]', "1", r"line 1: article must be a string, .* be lists"),
            ("swag/train.csv", ",1\n", ",4\n", r"train\.csv, line 2: the label '4' is not one of 0 to 3"),
            ("copa/balanced-copa-dev-all.xml", 'id="2"', 'id="b"', r"item 2: the id 'b' is not a number"),
            ("copa/balanced-copa-dev-all.xml", "cause", "reason", r"item 9: asks-for of id 3 is 'reason'"),
            ("copa/balanced-copa-dev-all.xml", 'tive="2"', 'tive="0"', r"alternative of id 3 is '0'"),
            ("copa/balanced-copa-dev-all.xml", "<p>It fell.</p>", "", r"p, a1 or a2 of id 1 is missing"),
            ("copa/balanced-copa-dev-all.xml", "</copa-corpus>", "", r"line 13: not valid XML"),
            ("arct/train-full.txt", "\t1\t", "\t2\t", r"full\.txt, line 2: the label '2' is neither 0 nor 1"),
        ],
    )
    def test_malformed_files_are_named(self, folder, file, old, new, message):
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))
        with pytest.raises(ConfigError, match=message):
            TASKS[file.partition("/")[0]].examples("train")

    def test_headings_alone_are_no_data(self, folder):
        (folder / "arct/train-full.txt").write_text(HEADING + "\n")
        with pytest.raises(ConfigError, match="has headings but no examples"):
            TASKS["arct"].examples("train")
        (folder / "copa/balanced-copa-dev-all.xml").write_text(COPA.format(items=""))
        with pytest.raises(ConfigError, match="is empty: it holds no item"):
            TASKS["copa"].examples("train")


class TestHub:
    def test_is_asked_where_there_are_no_files(self, monkeypatch):
        datasets = pytest.importorskip("datasets")
        rows = {
            ("allenai/swag", "regular"): {
                "sent1": "A.", "sent2": "He", "label": 2, **{f"ending{n}": f"e{n}" for n in range(4)}
            },
            ("ehovy/race", "high"): {"article": "A.", "question": "B?", "options": list("wxyz"), "answer": "C"},
        }  # fmt: skip
        asked = []

        def load(*names, split):
            asked.append(split)
            return [rows[names]]

        monkeypatch.setattr(datasets, "load_dataset", load)
        assert TASKS["swag"].examples("dev").items_for_pin() == [["A.", ["He e0", "He e1", "He e2", "He e3"], 2]]
        assert TASKS["race_high"].examples("train").labels.tolist() == [2]
        assert asked == ["validation", "train"]
