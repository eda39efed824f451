"""Stores united over ssh, with a server on this machine. Needs the extra `sync`, which `make test-engines` installs."""

import socket
import subprocess
import sys
import time

import pytest

from ablations.core.disk.publishing import StoreError
from ablations.core.sharing import remote
from ablations.core.sharing.sites import Folder
from ablations.core.sharing.sync import unite
from ablations.core.store import Records
from tests.unit.core.test_sync import add, contents

pytest.importorskip("sshfs")
pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]  # theirs are not about us


SERVER = """
import asyncio, asyncssh, subprocess, sys

class Open(asyncssh.SSHServer):
    def begin_auth(self, username):
        return False

def obey(process):
    done = subprocess.run(process.command, shell=True, capture_output=True, text=True)
    process.stdout.write(done.stdout)
    process.stderr.write(done.stderr)
    process.exit(done.returncode)

async def serve():
    key = asyncssh.generate_private_key("ssh-ed25519")
    options = dict(server_host_keys=[key], process_factory=obey, sftp_factory=True)
    server = await asyncssh.create_server(Open, "127.0.0.1", 0, **options)
    print(server.get_port(), key.export_public_key().decode().strip(), flush=True)
    await server.wait_closed()

asyncio.run(serve())
"""


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The address of a server that lets everybody in, and the file of this user's known hosts, which has its key."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    port, key = server.stdout.readline().strip().split(" ", 1)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    known = tmp_path / "home" / ".ssh" / "known_hosts"
    known.parent.mkdir(parents=True)
    known.write_text(f"[127.0.0.1]:{port} {key}\n")
    yield f"ssh://somebody@127.0.0.1:{port}", known
    server.kill()
    server.communicate()


def test_stores_are_united_and_the_other_machine_sees_to_it_that_one_wins(tmp_path, host):
    here, elsewhere = Records(tmp_path / "here"), Records(tmp_path / "another store")
    add(here, 0)
    add(elsewhere, 1)
    add(here, 2)
    add(elsewhere, 2, outcome="failed", sums=False)
    conflict = add(here, 3)
    add(elsewhere, 3, metrics={"heldout.loss": 3.5})
    there = remote.site(f"{host[0]}{elsewhere.folder}", 30.0)
    report = unite(Folder(here.folder), there)
    assert (len(report.pushed), len(report.pulled)) == (2, 1)
    assert [found.run for found in report.conflicts] == [conflict.id]
    assert [record.outcome for record in elsewhere.all()] == ["done"] * 4
    assert [damage.flaw for damage in elsewhere.verify()] == ["conflict"]
    stores = [contents(Folder(records.folder)) for records in (here, elsewhere)]
    own = [
        [store.pop(f"records/{conflict.id[:2]}/{conflict.id}.{of}") for of in ("json", "heldout")] for store in stores
    ]
    assert own[0] != own[1]
    assert stores[0] == stores[1]
    name = "environments/0123456789ab.json"
    assert there.put(name, b"one")
    assert not there.put(name, b"other")
    assert (elsewhere.folder / name).read_bytes() == b"one"
    assert [path for path in elsewhere.folder.rglob(".*") if path.is_file()] == []


def test_a_host_whose_key_is_not_known_is_refused(tmp_path, host):
    address, known = host
    known.write_text("")
    with pytest.raises(StoreError, match=r"[Hh]ost key"):
        remote.site(f"{address}{tmp_path}/store", 30.0)


def test_a_host_that_does_not_answer_ends_within_its_time(tmp_path, host):
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(StoreError, match=r"no answer|Timeout"):
        remote.site(f"ssh://127.0.0.1:{silent.getsockname()[1]}/store", 2.0)
    assert time.monotonic() - began < 8
