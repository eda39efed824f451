"""Where tasks get their data: folder or hub, several dev sets, splits of our own, caches of what has no pin."""

import dataclasses
import json
import logging

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.sources import Hub, Origin
from lightning_modules.tasks import TASKS, fingerprint, pins
from lightning_modules.tasks.readers.own_split import DevAndTest, EachItsOwn, Held, Sampled

MNLI = "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    return tmp_path


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


@pytest.fixture
def mnli(home):
    """Two training examples, three matched and two mismatched dev examples."""
    lines = [f"{n}\tfiction\tIt rains {n}.\tIt is wet.\tneutral\tentailment\n" for n in range(2)]
    put(home / "glue/MNLI/train.tsv", MNLI + "".join(lines))
    labels = ["entailment", "neutral", "contradiction"]
    for name, count in (("matched", 3), ("mismatched", 2)):
        lines = [f"{n}\tx\tOne.\tTwo {name}.\t-\t{label}\n" for n, label in enumerate(labels[:count])]
        put(home / f"glue/MNLI/dev_{name}.tsv", MNLI + "".join(lines))
    return TASKS["mnli"]


class TestTwoDevSets:
    def test_one_training_answers_both(self, mnli):
        train, dev = mnli.examples("train"), mnli.examples("dev")
        assert (len(train), train.parts) == (2, None)
        assert dev.parts.tolist() == [""] * 3 + ["mismatched"] * 2
        assert dev.items_for_pin()[4] == ["One.", "Two mismatched.", 1, "mismatched"]
        found = mnli.score(np.array([0, 1, 0, 0, 0]), dev)
        assert found.metrics == {"accuracy": pytest.approx(2 / 3), "mismatched_accuracy": 0.5}


class TestOwnSplits:
    def rows(self, home, texts, order=1):
        put(home / "snli/dev.txt", "".join(f"{a}\t{b}\t{label}\n" for a, b, label in texts[::order]))
        examples = {split: TASKS["snli_own"].examples(split) for split in ("train", "dev")}
        return {split: found.items_for_pin() for split, found in examples.items()}

    def test_each_example_is_on_one_side_and_premises_stay_together(self, home):
        texts = [(f"premise {n // 3}", f"text {n}", n % 3) for n in range(900)]
        found = self.rows(home, texts)
        sides = {split: {row[0] for row in rows} for split, rows in found.items()}
        assert not sides["train"] & sides["dev"]
        assert sorted(found["train"] + found["dev"]) == sorted(map(list, texts))
        assert 0.14 < len(found["dev"]) / 900 < 0.26

    def test_the_order_of_the_file_does_not_matter(self, home):
        texts = [(f"premise {n // 3}", f"text {n}", n % 3) for n in range(60)]
        assert self.rows(home, texts) == self.rows(home, texts, order=-1)

    def test_only_rows_that_say_so_read_a_test_set(self):
        tasks = [task for task in TASKS.values() if not isinstance(task.rows, (DevAndTest, Sampled, EachItsOwn))]
        names = [name for task in tasks if task.origin for name in task.origin.every_file]
        assert names
        assert not [name for name in names if "test" in name.rpartition("/")[2] and "latest" not in name]

    def test_own_splits_say_so(self):
        own = {name for name, task in TASKS.items() if isinstance(task.rows, (Held, DevAndTest, Sampled, EachItsOwn))}
        assert own
        assert all(TASKS[name].own_split and not TASKS[name].official for name in own)


class TestASample:
    """Of IMDb: a fixed number of test reviews, none of which says what a training review says."""

    def put(self, home, **texts):
        for split, rows in texts.items():
            lines = [json.dumps({"text": text, "label": n % 2}) for n, text in enumerate(rows)]
            put(home / f"imdb/{split}.jsonl", "\n".join(lines))

    def test_it_is_of_new_texts_whatever_the_order_of_the_file(self, home, monkeypatch):
        task = dataclasses.replace(TASKS["imdb_test_5k"], rows=Sampled(TASKS["imdb_test_5k"].rows.reader, 20))
        texts = [*(f"review {n}" for n in range(40)), "SEEN, before!", "review 7."]
        train = ["seen before", "another"]
        self.put(home, train=train, test=texts)
        dev = task.examples("dev")
        assert (len(dev), len(set(dev.first))) == (20, 20)
        assert set(dev.first) <= set(texts[:40])
        assert task.examples("train").first == train
        gold = dict(zip(dev.first, dev.labels.tolist(), strict=True))
        assert all(label == int(text.split()[1]) % 2 for text, label in gold.items())
        self.put(home, test=texts[:40:-1] + texts[:40])  # labels move with the order, texts do not
        assert task.examples("dev").first == dev.first


class TestDevAndTestTogether:
    """Of MRPC: the pairs of both files are scored, and no pair is trained on that says the same in whatever order."""

    def put(self, home, **pairs):
        head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        for name, rows in pairs.items():
            lines = [f"{label}\t1\t2\t{first}\t{second}\n" for label, first, second in rows]
            put(home / f"glue/MRPC/{name}.tsv", head + "".join(lines))

    def test_dev_comes_first_and_nothing_scored_is_trained_on(self, home):
        kept = [(1, "A man.", "One."), (1, "A dog.", "A dog."), (0, "It rains.", "It is dry.")]
        seen = [(0, "Two.", "One, two ..."), (1, "A cat - asleep.", "The cat"), (0, "One two", "two")]
        self.put(
            home,
            train=[kept[0], seen[0], kept[1], seen[1], kept[2], seen[2]],
            dev=[(1, "One two.", "Two.")],
            test_labelled=[(0, "The cat.", "a cat asleep"), (0, "A dog.", "It is dry.")],
        )
        train, dev = (TASKS["mrpc_dev_test"].examples(split) for split in ("train", "dev"))
        assert list(zip(train.labels, train.first, train.second, strict=True)) == kept
        assert (dev.first, dev.labels.tolist()) == (["One two.", "The cat.", "A dog."], [1, 0, 0])


class TestLinesThatAreLeftOut:
    def test_captions_without_a_gold_label_are_counted(self, home, caplog):
        lines = ["1c\tneutral\tA man.\tOne.", "2c\t-\tA man.\tTwo.", "3c\t-\tA man.\tThree."]
        put(home / "snli/snli_1.0_dev.txt", "\n".join(["pairID\tgold_label\tsentence1\tsentence2", *lines]))
        put(home / "snli/snli_1.0_train.txt", "x")
        with caplog.at_level(logging.WARNING):
            assert TASKS["snli"].examples("dev").second == ["One."]
        assert "snli_1.0_dev.txt: skipped 2 lines without a gold label: 3, 4" in caplog.text

    def test_questions_with_a_lines_end_are_counted_up_to_what_is_known(self, home, caplog):
        head, good = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n", "7\t1\t2\tWho?\tWhat?\t0\n"
        broken = '97\t1\t2\t"Was he\n"\tWas he real?\t0\n'
        put(home / "glue/QQP/train.tsv", head + broken + good)
        with caplog.at_level(logging.WARNING):
            assert TASKS["qqp"].examples("train").first == ["Who?"]
        assert "skipped 2 lines with too few fields: 2, 3" in caplog.text
        put(home / "glue/QQP/train.tsv", head + broken * 9 + good)
        with pytest.raises(ConfigError) as caught:
            TASKS["qqp"].examples("train")
        assert len(caught.value.problems) == 13
        assert str(caught.value.problems[-1]) == "6 more lines are wrong."


class TestHub:
    """Against folders in the hub's formats, through the same call that would ask the hub."""

    @pytest.fixture(autouse=True)
    def own_cache(self, home, tmp_path, monkeypatch):
        datasets = pytest.importorskip("datasets")
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")

    def test_parquet_by_configuration(self, home):
        pandas = pytest.importorskip("pandas")
        folder = home / "nyu-mll/glue/cola"
        folder.mkdir(parents=True)
        for split, count in (("train", 3), ("validation", 2)):
            rows = [{"sentence": f"It  rains {n}.", "label": n % 2, "idx": n} for n in range(count)]
            pandas.DataFrame(rows).to_parquet(folder / f"{split}-00000-of-00001.parquet")
        task = TASKS["cola"]
        assert task.examples("train").items_for_pin() == [[f"It rains {n}.", "", n % 2] for n in range(3)]
        assert len(task.examples("dev")) == 2
        assert task.origin.sizes_on_hub() in ({}, {"train": 3, "validation": 2})

    def test_a_copy_with_a_card_has_both_dev_sets(self, home):
        folder = home / "nyu-mll/glue"
        card = ["---", "configs:", "- config_name: mnli", "  data_files:"]
        for split in ("train", "validation_matched", "validation_mismatched"):
            card += [f"  - split: {split}", f"    path: mnli/{split}.jsonl"]
            put(folder / f"mnli/{split}.jsonl", json.dumps({"premise": split, "hypothesis": "b", "label": 2}))
        put(folder / "README.md", "\n".join([*card, "---", ""]))
        dev = TASKS["mnli"].examples("dev")
        assert dev.first == ["validation_matched", "validation_mismatched"]
        assert dev.parts.tolist() == ["", "mismatched"]

    def test_other_columns_are_named(self, home):
        put(home / "SetFit/sst5/train.jsonl", json.dumps({"sentence": "a", "label": 1}))
        with pytest.raises(ConfigError, match=r"SetFit/sst5 has no column text\. It has sentence, label"):
            TASKS["sst5"].examples("train")

    def test_rows_without_text_or_label_are_refused_by_number(self, home):
        rows = [{"text": "a", "label": 1}, {"text": None, "label": 1}, {"text": "b", "label": -1}]
        put(home / "SetFit/sst5/train.jsonl", "\n".join(map(json.dumps, rows)))
        with pytest.raises(ConfigError, match=r"row 2: has no text\.\n.*row 3: has the label '-1', which is not"):
            TASKS["sst5"].examples("train")

    def test_a_folder_in_the_official_format_comes_first(self, home):
        put(home / "SetFit/sst5/train.jsonl", json.dumps({"text": "hub", "label": 1}))
        put(home / "sst5/train.txt", "1\tfolder\n")
        assert TASKS["sst5"].examples("train").first == ["folder"]


class TestOrigin:
    origin = Origin("The data set X", {"train": ("x/train*.json", "x/more.txt"), "dev": ("x/dev.txt",)}, Hub("a/x"))

    def test_all_files_of_a_part_are_needed_and_the_first_match_counts(self, home):
        put(home / "x/train-v1.rebuilt.json", "")
        assert self.origin.find("train") == []
        put(home / "x/more.txt", "")
        assert [path.name for path in self.origin.find("train")] == ["train-v1.rebuilt.json", "more.txt"]
        put(home / "x/train-v1.json", "")
        assert [path.name for path in self.origin.find("train")] == ["train-v1.json", "more.txt"]
        assert self.origin.find("dev") == []


class TestFingerprintsWithoutAPin:
    def test_are_at_hand_with_the_files_or_once_measured(self, mnli, home, monkeypatch):
        assert pins.at_hand("mnli")
        assert pins.at_hand("bigram_shift")
        (home / "glue/MNLI/dev_matched.tsv").unlink()
        assert not pins.at_hand("mnli")
        monkeypatch.setattr(pins, "measured", lambda name: {})
        pins.expected("mnli")
        assert pins.at_hand("mnli")
        monkeypatch.undo()
        assert pins.at_hand("rte")  # pinned
        assert not pins.at_hand("qqp")

    def test_are_measured_once_until_a_file_changes(self, mnli, home, monkeypatch):
        before = fingerprint("mnli")
        with monkeypatch.context() as patch:
            patch.setattr(pins, "measured", None)
            assert fingerprint("mnli") == before
        put(home / "glue/MNLI/train.tsv", MNLI + "0\tx\tOther.\tText.\t-\tneutral\n")
        assert fingerprint("mnli") != before
