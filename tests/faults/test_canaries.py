"""No command writes, changes or removes anything but in the folders that it is given, whoever calls it."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.contract.test_commands import COMMANDS
from tests.depth import NIGHTLY
from tests.faults import canaries
from tests.forking import forked

USERS = ["root", "ordinary"] if os.geteuid() == 0 and NIGHTLY else ["ordinary"]


@pytest.fixture(scope="module")
def called():
    """A folder with what was there before and after all calls, and what each call came to."""
    folder = Path(tempfile.mkdtemp())  # pytest's are closed to other users
    folder.chmod(0o755)

    def work():
        os.chdir(folder)
        os.environ |= {"HF_HUB_OFFLINE": "1", "MPLCONFIGDIR": str(folder)}
        canaries.main(folder)

    _, status = os.waitpid(forked(work), 0)
    assert status == 0, "stderr says why"
    yield {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=True)
    shutil.rmtree(folder)


def calls(called, user):
    if user not in called:
        pytest.skip("an ordinary user may not read this checkout")
    return called[user]


def test_every_command_has_a_call():
    assert canaries.COMMANDS.keys() == {" ".join(words) for words in COMMANDS}
    for name, rows in canaries.COMMANDS.items():
        assert all(" ".join(words).startswith(name) for words in rows)


def test_nothing_else_has_changed(called):
    before, after = called["before"], called["after"]
    assert len(before) > 20 * len(USERS)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == set()


@pytest.mark.parametrize("user", USERS)
def test_no_command_ends_in_a_traceback(called, user):
    for one in calls(called, user):
        assert not one["failed"], one
        assert one["code"] in (0, 1, 2), one
        assert "Usage:" not in one["output"], one


@pytest.mark.parametrize("user", USERS)
def test_where_one_may_not_write_the_path_is_named(called, user):
    asked = [one for one in calls(called, user) if any("UNWRITABLE" in word for word in one["words"])]
    assert asked
    for one in asked:
        if one["words"][0] != "finetune":  # the model is too short for the task
            assert one["code"] == 2, one
            assert one["path"] in one["output"].replace("\n", ""), one


@pytest.mark.parametrize("user", USERS)
def test_a_home_is_no_cache(called, user):
    refused = [one for one in calls(called, user) if one.get("refused")]
    assert len(refused) > 2
    for one in refused:
        assert one["code"] == 2, one
        assert "ABLATIONS_CACHE" in one["output"], one


@pytest.mark.parametrize("user", USERS)
def test_clean_leaves_a_run_that_trains(called, user):
    (one,) = (one for one in calls(called, user) if "kept" in one)
    assert one["kept"], one
    assert "trains" in one["output"], one
