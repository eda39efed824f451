"""Links in results folders and caches: nothing is read or written where they lead out of the folder."""

import os
import shutil

import pytest

from ablations.core import provenance
from ablations.core.disk import kept_weights, locks
from ablations.core.disk.publishing import StoreError
from ablations.core.store import Records
from ablations.core.sync import bring
from ablations.pages import checkpoint_table, publishing
from ablations.running import inference
from ablations.running.launchers import registered
from ablations.running.outcomes import LOG
from ablations.running.worker import note
from lightning_modules import cached
from lightning_modules.config import ConfigError
from lightning_modules.files import Refused
from tests.unit.core.test_store import make_record, make_run
from tests.unit.core.test_sync import add


@pytest.fixture
def outside(tmp_path):
    """A folder of somebody else's; afterwards it is as it was."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_bytes(b"text")
    yield folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"precious": b"text"}


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results")


def moved(path, place):
    """Moves a file or folder away, and leaves a link to it."""
    place.parent.mkdir(exist_ok=True)
    shutil.move(path, place)
    path.symlink_to(place)


class TestReading:
    @pytest.mark.parametrize("place", ["records/*/*.json", "records/*/*.heldout", "environments/*.json", "records/??"])
    def test_what_is_linked_out_of_the_results_is_named_and_not_read(self, records, tmp_path, place):
        add(records, 0)
        assert records.verify() == []
        (path,) = records.folder.glob(place)
        moved(path, tmp_path / "elsewhere" / path.name)
        (first, *_) = records.verify()
        assert first.flaw == "unreadable"
        assert "is a link out of" in first.message

    def test_links_within_the_results_are_followed_and_so_is_one_to_them(self, records, tmp_path):
        record = add(records, 0)
        moved(records.path(record.id), records.folder / "kept" / "record.json")
        moved(records.folder, tmp_path / "elsewhere" / "results")
        assert records.verify() == []
        assert records.get(record.id) == record

    def test_weights_that_are_linked_out_are_not_used(self, records, tmp_path):
        path = records.folder / "weights" / "0" / "weights.safetensors"
        cached.write(path, lambda file: file.write(b"weights"), path.parents[1])
        assert kept_weights.kept(records.folder, "0", path.name) == path
        moved(path, tmp_path / "elsewhere" / path.name)
        assert kept_weights.kept(records.folder, "0", path.name) is None


class TestSync:
    @pytest.mark.parametrize("name", ["records", "environments", "records/{}"])
    def test_no_record_is_written_through_a_link_and_none_without_what_belongs_to_it(self, tmp_path, outside, name):
        here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
        name = name.format(add(there, 0).id[:2])
        (here.folder / name).parent.mkdir(parents=True)
        (here.folder / name).symlink_to(outside)
        with pytest.raises(StoreError, match=rf"{name}.*: is linked out of"):
            bring(there, here)
        assert here.files() == []

    @pytest.mark.parametrize("place", ["records/*/*.json", "records/*/*.heldout", "environments/*.json"])
    def test_what_is_linked_out_of_the_other_folder_is_named_and_not_copied(self, tmp_path, place):
        here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
        add(there, 0)
        (path,) = there.folder.glob(place)
        moved(path, tmp_path / "elsewhere" / path.name)
        name = path.relative_to(there.folder).as_posix()
        assert [damage.path for _, damage in bring(there, here).damages] == [name]
        assert not (here.folder / name).exists()

    @pytest.mark.parametrize("side", ["here", "there"])
    def test_a_pipe_in_place_of_a_file_stays_and_is_named(self, tmp_path, side):
        here, there = stores = [Records(tmp_path / name) for name in ("here", "there")]
        for store in stores:
            record = add(store, 0, digest=False)
        folder = (here if side == "here" else there).folder
        pipes = [Records(folder).path(record.id), folder / "records" / "heldout.sha256"]
        pipes[0].unlink()
        for path in pipes:
            os.mkfifo(path)
        report = bring(there, here)
        assert {damage.path for _, damage in report.damages} == {path.relative_to(folder).as_posix() for path in pipes}
        assert all(path.is_fifo() for path in pipes)


class TestWriting:
    def test_a_record_is_not_written_through_a_link(self, records, outside):
        record = make_record(make_run(0))
        folder = records.path(record.id).parent
        folder.parent.mkdir(parents=True)
        folder.symlink_to(outside)
        for write in (lambda: records.put(record), lambda: records.put_sums(record.id, {})):
            with pytest.raises(StoreError, match=rf"{folder.name}: is linked out of"):
                write()

    @pytest.mark.parametrize("name", ["environments", ".locks"])
    def test_what_belongs_to_records_is_not_either(self, records, outside, name):
        records.folder.mkdir()
        (records.folder / name).symlink_to(outside)
        with pytest.raises(StoreError, match=rf"{name}: is linked out of"):
            provenance.environment(records.folder)

    def test_weights_are_not_either(self, records, outside):
        records.folder.mkdir()
        (records.folder / "weights").symlink_to(outside)
        with pytest.raises(StoreError, match="is linked out of"):
            kept_weights.keep(records.folder, "0", outside / "precious", outside / "precious")

    @pytest.mark.parametrize("name", ["depth", "depth/smoke"])
    def test_a_page_is_not_either(self, records, outside, name):
        page = records.folder / "depth" / "smoke"
        (records.folder / name).parent.mkdir(parents=True)
        (records.folder / name).symlink_to(outside)
        with pytest.raises(ConfigError, match="is linked out of"):
            publishing.check_page("masking_ratio", page)
        found = {"name": "a", "parameters": 1, "positions": 1, "metrics": {}, "device": "cpu", "threads": 1}
        for keep in (checkpoint_table.keep, inference.keep):
            with pytest.raises(StoreError, match="is linked out of"):
                keep(page, found)

    def test_a_log_does_not_follow_a_link(self, tmp_path, outside):
        (tmp_path / LOG).symlink_to(outside / "precious")
        note(tmp_path, "began")
        note(tmp_path, "ended")
        assert not (tmp_path / LOG).is_symlink()
        assert [line.split()[-1] for line in (tmp_path / LOG).read_text().splitlines()] == ["began", "ended"]


def launched(records):
    with registered(records, ["0" * 16]):
        pass


class TestLocks:
    """A link, a pipe or a folder in the place of a lock is named, with what to do, and stays."""

    TAKING = {
        "0" * 16: lambda records: records.is_locked("0" * 16),
        "environments": lambda records: provenance.environment(records.folder),
        "launchers": launched,
        "launchers/" + "1" * 16: launched,
    }

    @pytest.mark.parametrize("name", TAKING)
    def test_of_results(self, records, outside, name):
        path = locks.named(records.folder, name).lock_file
        if name.startswith("launchers/"):
            (records.folder / ".locks" / f"{name}.json").write_text("{}")  # of another launcher
        os.symlink(outside / "precious", path)
        with pytest.raises(Refused, match=rf"{name}\.lock: is a link where a lock should be. Remove it"):
            self.TAKING[name](records)
        assert os.path.islink(path)

    def test_of_the_cache(self, tmp_path, outside):
        (tmp_path / "file.lock").symlink_to(outside / "precious")
        with pytest.raises(Refused, match=r"file\.lock: is a link where a lock should be. Remove it"):
            cached.kept(tmp_path / "file", lambda file: file.write(b"1"), str)

    def test_pipes_and_folders(self, records):
        os.mkfifo(locks.named(records.folder, "a").lock_file)
        os.mkdir(locks.named(records.folder, "b").lock_file)
        for name in "ab":
            with pytest.raises(Refused, match="where a file should be"):
                locks.named(records.folder, name)
