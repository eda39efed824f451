"""Bars as files: whole or named, found by what they are of, computed once, carried to other stores."""

import json
import multiprocessing

import pytest

from ablations.core.bars import complete, complete_finished, complete_methods
from ablations.core.disk import bars
from ablations.core.disk.bars import Bar, Bars
from ablations.core.store import Records
from ablations.core.sync import bring
from ablations.schema.record import checksum
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.data import fingerprints_of
from lightning_modules.measures import counting, heldout_text
from lightning_modules.measures.counting import Reached
from lightning_modules.systems import ROBERTA_BASE
from lightning_modules.tasks import FineTuning
from lightning_modules.tasks.pins import fingerprint
from tests.unit.core.test_store import make_record

FLOOR, OTHER = "product of counts of the two neighbours", "another"
REACHED = Reached(
    {FLOOR: 4.5, OTHER: 4.25}, {100: 4.5, 50: 4.75}, {FLOOR: [1], OTHER: [2]}, {"training": 100}, "a", "b"
)


def make_run(seed):
    prints = dict.fromkeys((*ROBERTA_BASE.corpora, "novels", "wikipedia-mini"), "0" * 64)
    return Run.pretraining(ROBERTA_BASE, seed, prints)


def bar_of(run=None, reached=REACHED):
    return bars.made(run or make_run(0), "mlm", reached)


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results")


def changed(path, change):
    """A bar's file with other content and the checksum of that."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data | {"checksum": checksum(data)}))


def test_it_is_read_between_the_amounts_that_were_counted():
    bar = bar_of()
    assert [bar.after(tokens) for tokens in (49, 50, 100, 101)] == [None, 4.75, 4.5, None]
    assert bar.after(50 * 2**0.5) == pytest.approx(4.625)


def test_it_is_found_by_the_run(records):
    run = make_run(0)
    path = bars.write(records.folder, bar_of(run))
    assert path == records.folder / bars.file(bars.name(run, "mlm"))
    found = Bars(records.folder).of(make_run(1))["mlm"]  # of another seed: the same words
    assert found == bar_of(run)
    assert (found.level, found.metric) == (4.5, "heldout.loss")
    assert Bars(records.folder).of(Run.read(run.to_dict() | {"system": other(run).to_dict()})) == {}
    assert Bars(None).of(run) == {}
    assert records.verify() == []


def other(run):
    return run.system.but(**{"evaluation.rate": 0.3})


DAMAGES = {
    "cut short": (lambda path: path.write_bytes(path.read_bytes()[:200]), "truncated"),
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "another number": (lambda path: path.write_text(path.read_text().replace("4.5", "4.4")), "altered"),
    "infinite": (lambda path: path.write_text(path.read_text().replace("4.5", "1e999")), "malformed"),
    "no recipe": (lambda path: changed(path, lambda data: data.pop("recipe")), "malformed"),
    "half a recipe": (lambda path: changed(path, lambda data: data["recipe"].pop("fitted_on")), "malformed"),
    "no such method": (lambda path: changed(path, lambda data: data["recipe"]["methods"].pop(OTHER)), "malformed"),
    "no text counted": (lambda path: changed(path, lambda data: data["recipe"].update(counted={})), "malformed"),
    "no floor": (lambda path: changed(path, lambda data: data.update(floor="nothing")), "malformed"),
    "another text": (lambda path: changed(path, lambda data: data["text"].__setitem__(3, 7)), "misplaced"),
    "another question": (lambda path: changed(path, lambda data: data.update(question="next_loss")), "misplaced"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bar_is_named_and_counts_as_none(records, damage):
    path = bars.write(records.folder, bar_of())
    spoil, flaw = DAMAGES[damage]
    spoil(path)
    (found,) = records.verify()
    assert (found.path, found.flaw) == (f"bars/{path.name}", flaw)
    assert Bars(records.folder).of(make_run(0)) == {}
    assert not bars.is_kept(records.folder, path.stem)
    bars.write(records.folder, bar_of())  # and is replaced
    assert records.verify() == []
    assert Bars(records.folder).of(make_run(0))


def test_all_texts_of_a_chain_are_part_of_the_name():
    run = make_run(0)
    chain = {"data.corpora": ["wikipedia-2015"], "training.start": {"data.corpora": ["wikipedia-mini"]}}
    changes = {"data.corpora": ["novels"], "data.tokenizer.corpora": ["wikipedia-mini"]}
    text = dict.fromkeys(("novels", "wikipedia-2015", "wikipedia-mini"), "aa")
    one = Run.pretraining(run.system.but(**changes, **{"training.start": chain}), 0, text)
    counted = {"training": 100, "trunk": 50, "trunk 2": 25}
    assert [*heldout_text.read(one.system)] == [*counted]
    made = bars.made(one, "mlm", Reached({FLOOR: 4.5}, {100: 4.5}, {FLOOR: [1]}, counted, "a", "b"))
    assert made.name == bars.name(one, "mlm")
    assert Bar.read(json.loads(json.dumps(made.to_dict(), sort_keys=True))).name == made.name
    other = Run.pretraining(one.system, 0, text | {"wikipedia-2015": "bb"})
    assert bars.name(other, "mlm") != made.name


def test_a_store_elsewhere_gets_the_bars_of_its_records(records, tmp_path):
    record = records.put(make_record(make_run(0)))
    path = bars.write(records.folder, bar_of(record.run()))
    bars.write(records.folder, bar_of(Run.read(record.config | {"system": other(record.run()).to_dict()})))
    there = Records(tmp_path / "there")
    assert bring(records, there).whole
    assert (there.folder / "bars" / path.name).read_bytes() == path.read_bytes()
    assert len([*there.folder.glob("bars/*")]) == 1  # no record there is of the other text
    path.write_bytes(b"{")
    report = bring(records, Records(tmp_path / "third"))
    assert [damage.path for _, damage in report.damages] == [f"bars/{path.name}"]
    assert not (tmp_path / "third" / "bars").exists()


def tagged(records, metrics, **settings):
    """A record of a fine-tuning on names with some of its metrics."""
    tuning = FineTuning().but(**settings)
    run = Run.finetuning_of(make_run(0), "wnut17", "f" * 64, tuning)
    return records.put(make_record(run, metrics={"wnut17.entity_f1": 0.2, **metrics}))


OF_WORDS = {"wnut17.entity_f1.majority": 0.0, "wnut17.entity_f1.lookup": 0.1}
LATER = "wnut17.entity_f1.linear"


def test_methods_that_a_record_lacks_are_kept_next_to_it(records, tmp_path):
    record = tagged(records, OF_WORDS)
    assert bars.lacking(record) == {LATER}
    path = bars.write(records.folder, bars.made_methods(record.run(), OF_WORDS | {LATER: 0.3}))
    kept = Bars(records.folder)
    assert kept.of_methods(record) == {LATER: 0.3}, "what was recorded stays"
    assert kept.of_methods(tagged(records, OF_WORDS | {LATER: 0.25}, epochs=7)) == {}
    assert kept.of_methods(tagged(records, OF_WORDS, train_examples=100)) == {}, "of other labels"
    assert records.verify() == []
    there = Records(tmp_path / "there")
    assert bring(records, there).whole
    assert (there.folder / "bars" / path.name).read_bytes() == path.read_bytes()
    path.write_text(path.read_text().replace("0.3", "0.1"))
    (found,) = records.verify()
    assert (found.path, found.flaw) == (f"bars/{path.name}", "altered")
    assert Bars(records.folder).of_methods(record) == {}


def test_methods_are_computed_once_and_of_the_same_examples_alone(records):
    tuning = FineTuning().but(train_examples=64)
    run = Run.finetuning_of(make_run(0), "bigram_shift", fingerprint("bigram_shift"), tuning)
    record = records.put(make_record(run, metrics={"bigram_shift.accuracy": 0.5}))
    assert [complete_methods(record, records) for _ in range(2)] == [True, False]
    assert Bars(records.folder).of_methods(record).keys() == bars.lacking(record)
    (records.folder / bars.file(bars.methods_name(run))).unlink()
    assert complete_finished([run], records) == []  # as `ablations run` does
    assert Bars(records.folder).of_methods(record).keys() == bars.lacking(record)
    other = Run.finetuning_of(make_run(1), "bigram_shift", "0" * 64, tuning)
    with pytest.raises(ConfigError, match="the examples of bigram_shift are others"):
        complete_methods(records.put(make_record(other, metrics={"bigram_shift.accuracy": 0.5})), records)
    (problem,) = complete_finished([run, other], records)
    assert "the examples of bigram_shift are others" in problem


@pytest.fixture
def run(tiny):
    return Run.pretraining(tiny, 0, fingerprints_of(tiny.corpora))


def test_it_is_computed_once(run, records, monkeypatch):
    (bar,) = complete(run, records)
    assert bars.read(records.folder, bars.name(run, "mlm")) == bar
    assert bar.level == counting.reached(run.system, "mlm").scores[bar.floor]
    monkeypatch.setattr(counting, "reached", None)
    assert complete(run, records) == []


def test_of_a_text_that_has_changed_nothing_is_computed(run, records):
    altered = Run.pretraining(run.system, 0, dict.fromkeys(run.fingerprints, "0" * 64))
    with pytest.raises(ConfigError, match="is another one than that of the run"):
        complete(altered, records)
    assert not (records.folder / "bars").exists()


def _complete(run, folder, begin, told, wait):
    from lightning_modules.measures import counting as module

    usual = module.reached

    def noted(system, target):
        told.put("computed")
        return usual(system, target)

    module.reached = noted
    begin.wait()
    told.put(len(complete(run, Records(folder), wait)))


@pytest.mark.parametrize("wait", [True, False])
def test_of_many_that_start_together_one_computes_it(run, records, wait):
    context = multiprocessing.get_context("fork")
    begin, told = context.Event(), context.Queue()
    workers = [context.Process(target=_complete, args=(run, records.folder, begin, told, wait)) for _ in range(4)]
    for worker in workers:
        worker.start()
    begin.set()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    said = [told.get() for _ in range(5)]
    assert said.count("computed") == 1
    assert sorted(one for one in said if one != "computed") == [0, 0, 0, 1]
    assert records.verify() == []
    assert len(bars.Bars(records.folder).of(run)) == 1
