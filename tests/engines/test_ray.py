"""The executor of Ray on a cluster of two nodes, one of which dies in the middle of a grid."""

from pathlib import Path

import pytest

from ablations.running.engines import ray
from ablations.running.execute import execute
from ablations.study import Study
from lightning_modules.config import ConfigError
from tests import tiny
from tests.engines.conftest import planned
from tests.faults.support import attempts, contents

cluster_utils = pytest.importorskip("ray.cluster_utils")


@pytest.fixture(scope="module")
def cluster():
    """A head without cores, to which tests add nodes."""
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    made.shutdown()


@pytest.fixture
def one_core(cluster):
    """The cluster with one node."""
    node = cluster.add_node(num_cpus=1)
    yield cluster
    cluster.remove_node(node)


def in_the_middle(act):
    """An ``on_event`` that acts once both runs have begun."""
    begun, acted = set(), []

    def tell(event):
        if event.kind == "progress":
            begun.add(event.run_id)
        if len(begun) == 2 and not acted:
            acted.append(True)
            act()

    return tell


def interrupt():
    raise KeyboardInterrupt


def test_interrupted_and_bereft_of_a_node_a_grid_loses_nothing(undisturbed, records, cluster):
    grid, folder, expected = undisturbed
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    found, asked = planned(grid, records), {"kind": "ray", "address": cluster.address}
    with pytest.raises(KeyboardInterrupt):
        execute(found, records, asked, on_event=in_the_middle(interrupt))
    assert list(records.all()) == []
    assert all((records.work_folder(run.id) / "last.ckpt").exists() for run in found.runs)
    assert not any(records.is_locked(run.id) for run in found.runs)

    die = in_the_middle(lambda: cluster.remove_node(nodes[0], allow_graceful=False))
    summary = execute(found, records, asked, retries=0, on_event=die)
    cluster.remove_node(nodes[1])
    assert (summary.outcomes, summary.executed) == ({"done": 2}, 2)
    assert contents(records) == expected
    told = [[line.split(";")[0] for line in lines] for lines in attempts(records).values()]
    undone, lost = ["1 started", "1 interrupted"], ["1 started"]
    assert sorted(told, key=len) == [[*undone, "1 started", "1 done"], [*undone, *lost, "1 started", "1 done"]]
    tables = [str(Study(grid, "smoke", results_dir=place).table()) for place in (records.folder, folder)]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(("asked", "said"), [({"gpus": 1}, "GPU 1"), ({"cpus": 64}, "CPU 64")])
def test_what_no_node_can_hold_is_refused(records, one_core, tmp_path, asked, said):
    with pytest.raises(ConfigError, match=rf"no node can hold a run that needs .*{said}.*CPU 1"):
        execute(planned(tiny.grid(tmp_path), records), records, {"kind": "ray", "address": one_core.address, **asked})
    assert list(records.all()) == []


def test_code_that_a_node_cannot_import_is_refused(records, one_core, tmp_path, monkeypatch):
    def broken(folder, copied=ray.copied):
        copied(folder)
        with (Path(folder) / "ablations" / "running" / "engines" / "node.py").open("a") as file:
            file.write("import a_module_of_another_machine\n")

    monkeypatch.setattr(ray, "copied", broken)
    with pytest.raises(ConfigError, match=r"a node cannot make runs with the code it was sent: .*a_module_of_another"):
        execute(planned(tiny.grid(tmp_path), records), records, {"kind": "ray", "address": one_core.address})
    assert list(records.all()) == []
