"""What the kernel says of processes that it killed for memory."""

import pytest

from ablations.running.ranks import memory

V1 = "5:cpu,cpuacct:/\n4:memory:/jobs/a job\n0::/\n"
V2 = "0::/user.slice/a:b.scope\n"
EVENTS = "low 0\nhigh 12\nmax 5\noom 2\noom_kill {}\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Makes a machine with these groups and files."""

    def make(groups, files):
        monkeypatch.setattr(memory, "_GROUPS", tmp_path / "cgroup")
        monkeypatch.setattr(memory, "_MOUNT", tmp_path / "mount")
        if groups is not None:
            (tmp_path / "cgroup").write_text(groups)
        for name, text in files.items():
            path = tmp_path / "mount" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return make


@pytest.mark.parametrize(
    ("groups", "files", "count"),
    [
        (V2, {"user.slice/a:b.scope/memory.events": EVENTS.format(3)}, 3),
        (V2, {"user.slice/a:b.scope/memory.events": EVENTS.format(3), "memory.events": EVENTS.format(7)}, 3),
        (V2, {"memory.events": EVENTS.format(7)}, 7),
        (V1, {"memory/jobs/a job/memory.oom_control": CONTROL.format(4)}, 4),
        (V1, {"memory/memory.oom_control": CONTROL.format(9)}, 9),
        (V1, {"memory/jobs/a job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"}, 0),
        (V2, {}, 0),
        ("", {"memory.events": EVENTS.format(7)}, 0),
        (None, {}, 0),
    ],
    ids=[
        "v2",
        "v2, its own",
        "v2 in a container",
        "v1",
        "v1 in a container",
        "old",
        "no file",
        "no group",
        "no kernel",
    ],
)
def test_the_count_of_the_own_group(machine, groups, files, count):
    machine(groups, files)
    assert memory.kills() == count
