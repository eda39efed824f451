"""Stores united over a local object server, which speaks S3 as moto does.

Needs the extras `sync` and `object-server`, which `make test-engines` installs.
"""

import errno
import socket
import time
import urllib.request

import pytest

from ablations.core.disk.publishing import StoreError
from ablations.core.sharing import remote
from ablations.core.sharing.sites import Folder
from ablations.core.sharing.sync import unite
from ablations.core.store import Records
from tests.unit.core.test_sync import add, contents

s3fs = pytest.importorskip("s3fs")
servers = pytest.importorskip("moto.server")
pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]  # theirs are not about us
EACH_WAY = 200


@pytest.fixture(scope="module")
def server():
    started = servers.ThreadedMotoServer(port=0)
    started.start()
    yield "http://{}:{}".format(*started.get_host_and_port())
    started.stop()


@pytest.fixture
def bucket(server, monkeypatch):
    """The address of a store in an empty bucket."""
    for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    urllib.request.urlopen(urllib.request.Request(f"{server}/moto-api/reset", method="POST"), timeout=10).close()
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir("bucket")
    return "s3://bucket/some/store"


def test_two_hundred_records_go_each_way_and_a_conflict_is_explained(tmp_path, bucket):
    here, elsewhere = Records(tmp_path / "here"), Records(tmp_path / "elsewhere")
    for seed in range(EACH_WAY):
        add(here, seed)
        add(elsewhere, EACH_WAY + seed)
    ours, theirs = add(here, 1000, metrics={"heldout.loss": 3.25}), add(elsewhere, 1000, metrics={"heldout.loss": 3.5})
    there = remote.site(bucket, 60.0)
    assert len(unite(Folder(elsewhere.folder), there).pushed) == EACH_WAY + 1
    report = unite(Folder(here.folder), there)
    assert (len(report.pushed), len(report.pulled), report.same) == (EACH_WAY, EACH_WAY, 0)
    assert [conflict.run for conflict in report.conflicts] == [ours.id]
    (damage,) = here.verify()
    assert damage.flaw == "conflict"
    assert "3.25 here, 3.5 there" in damage.message
    assert len(unite(Folder(elsewhere.folder), there).pulled) == EACH_WAY
    stores = [contents(place) for place in (Folder(here.folder), Folder(elsewhere.folder), there)]
    own = [[store.pop(f"records/{ours.id[:2]}/{ours.id}.{of}") for of in ("json", "heldout")] for store in stores]
    assert stores[0] == stores[1] == stores[2]
    assert own[0] != own[1] == own[2]
    assert elsewhere.get(ours.id) == theirs


def test_an_object_is_created_only_where_there_is_none(bucket):
    one, other = remote.site(bucket, 30.0), remote.site(bucket, 30.0)
    name = "environments/0123456789ab.json"
    assert one.put(name, b"one")
    assert not other.put(name, b"other")
    assert one.put(name, b"one")
    assert other.put(name, b"later", lambda there: there == b"one") is False
    assert other.put(name, b"other", lambda there: False)
    assert other.read([name]) == {name: b"other"}
    assert list(one.files()) == [name]  # no trial is left


def test_a_missing_bucket_is_named_and_not_made(tmp_path, bucket):
    here = Records(tmp_path / "here")
    add(here, 0)
    with pytest.raises(StoreError, match="no such place") as raised:
        unite(Folder(here.folder), remote.site("s3://another/store", 30.0))
    assert raised.value.errno == errno.ENOENT
    assert s3fs.S3FileSystem(skip_instance_cache=True).ls("") == ["bucket"]


def test_an_address_nobody_answers_at_ends_within_its_time(tmp_path, bucket, monkeypatch):
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(StoreError, match="no answer within 2 s"):
            unite(Folder(tmp_path), remote.site(bucket, 2.0))
    assert time.monotonic() - began < 8
