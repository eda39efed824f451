"""The executor of Ray on a cluster of two nodes, one of which dies, or is cut off, in the middle of a grid."""

import os
from pathlib import Path

import psutil
import pytest

from ablations.core.store import Records
from ablations.running.engines import ray
from ablations.running.execute import execute
from ablations.study import Study
from lightning_modules.config import ConfigError
from lightning_modules.training.execution import Execution
from tests import tiny
from tests.engines.conftest import deadly, in_the_middle, interrupt, planned, published
from tests.faults.support import attempts, contents, until

cluster_utils = pytest.importorskip("ray.cluster_utils")
IMPATIENT = {"health_check_timeout_ms": 4000, "health_check_period_ms": 1000, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module")
def cluster():
    """A head without cores, to which tests add nodes."""
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": IMPATIENT}
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    yield made
    made.shutdown()


@pytest.fixture
def one_core(cluster):
    """The cluster with one node."""
    node = cluster.add_node(num_cpus=1)
    yield cluster
    cluster.remove_node(node)


def test_interrupted_and_bereft_of_a_node_a_grid_loses_nothing(undisturbed, records, cluster, tmp_path):
    """Its tables are those of the local executor, and all files published, once wall times are made equal."""
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
    undone, lost = ["1 started", "1 interrupted"], ["1 started"]
    assert sorted(attempts(records).values(), key=len) == [
        [*undone, "1 started", "1 done"],
        [*undone, *lost, "1 started", "1 done"],
    ]
    tables = [str(Study(grid, "smoke", results_dir=place).table()) for place in (records.folder, folder)]
    assert tables[0] == tables[1]
    pages = [published(grid, store, tmp_path / name) for store, name in ((records, "ray"), (Records(folder), "local"))]
    assert {"tiny/smoke/table.md", "tiny/smoke/table.csv", "tiny/smoke/README.md"} <= pages[0].keys()
    assert pages[0] == pages[1]


def test_a_run_that_always_dies_costs_its_task_no_other(undisturbed, records, one_core):
    grid, _, expected = undisturbed
    found = planned(grid, records)
    poison, other = (run.id for run in found.runs)
    asked = {"kind": "ray", "address": one_core.address}
    summary = execute(found, records, asked, retries=1, on_event=deadly(records, poison))
    assert (summary.outcomes, summary.executed) == ({"done": 1, "killed": 1}, 3)
    record = records.get(poison)
    assert (record.detail, record.provenance["attempts"]) == ("the process died of signal 11", 2)
    assert contents(records)[other] == expected[other]


class CutOff:
    """An ``on_event`` that stops all processes of a node once it trains, and lets its run go on when a second trains.

    The run of the node that is cut off records first: until then the second one is held.
    """

    def __init__(self, cluster, records):
        self.cluster, self.records = cluster, records
        self.node, self.stopped, self.begun = cluster.add_node(num_cpus=1), [], 0
        self.record = b""

    def __call__(self, event):
        self.begun += event.kind == "started"
        if event.kind == "progress" and self.begun == 1 and not self.stopped:
            self.stopped = self.processes(self.node)
            for process in self.stopped:
                process.suspend()
            # a file server forgets the locks of a client that it no longer hears
            os.unlink(self.records.lock(event.run_id).lock_file)
            self.cluster.add_node(num_cpus=1)
        if event.kind == "progress" and self.begun == 2 and not self.record:
            (second,) = self.runs(self.processes(*self.cluster.worker_nodes - {self.node}))
            (first,) = self.runs(self.stopped)
            second.suspend()
            first.resume()
            path = self.records.path(event.run_id)
            until(path.exists, 300)
            self.record = path.read_bytes()
            second.resume()

    def processes(self, node):
        """The processes of a node: its raylet, and what is below it."""
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        return [raylet, *raylet.children(recursive=True)]

    def runs(self, processes):
        """Those that train."""
        return [process for process in processes if "spawn_main" in " ".join(process.cmdline())]

    def end(self):
        """Ends both nodes."""
        for process in self.stopped:
            process.kill()
        for node in list(self.cluster.worker_nodes):
            self.cluster.remove_node(node, allow_graceful=False)


def test_work_of_a_node_that_was_given_up_and_went_on_is_reported_and_recorded_once(records, cluster, tmp_path):
    grid = tiny.grid(tmp_path, rates="[0.15]", seeds=1, steps=1000)
    cut_off, asked = CutOff(cluster, records), {"kind": "ray", "address": cluster.address}
    try:
        summary = execute(planned(grid, records), records, asked, retries=0, on_event=cut_off)
    finally:
        cut_off.end()
    assert cut_off.begun == 2
    assert (summary.outcomes, summary.executed, summary.duplicates) == ({"done": 1}, 1, 1)
    assert "1 of them after another process had recorded the run" in str(summary)
    (path,) = records.files()
    assert path.read_bytes() == cut_off.record
    assert records.verify() == []
    (told,) = attempts(records).values()
    assert [line.split(",")[0] for line in told] == ["1 started", "1 started", "1 done", "1 done"]
    assert told[-1].startswith("1 done, too late")


@pytest.mark.parametrize(("asked", "said"), [({"gpus": 1}, "GPU 1"), ({"cpus": 64}, "CPU 64")])
def test_what_no_node_can_hold_is_refused(records, one_core, tmp_path, asked, said):
    with pytest.raises(ConfigError, match=rf"no node can hold a run that needs .*{said}.*CPU 1"):
        execute(planned(tiny.grid(tmp_path), records), records, {"kind": "ray", "address": one_core.address, **asked})
    assert list(records.all()) == []


def test_code_that_a_node_cannot_import_is_refused(records, one_core, tmp_path, monkeypatch):
    def broken(folder, copied=ray.copied):
        copied(folder)
        with (Path(folder) / "ablations" / "running" / "keeper.py").open("a") as file:
            file.write("import a_module_of_another_machine\n")

    monkeypatch.setattr(ray, "copied", broken)
    with pytest.raises(ConfigError, match=r"a node cannot make runs with the code it was sent: .*a_module_of_another"):
        execute(planned(tiny.grid(tmp_path), records), records, {"kind": "ray", "address": one_core.address})
    assert list(records.all()) == []


def test_processes_of_one_node_share_a_run(records, cluster, tmp_path):
    grid = tiny.grid(tmp_path, rates="[0.15]", seeds=1)
    node, asked = cluster.add_node(num_cpus=2), {"kind": "ray", "address": cluster.address}
    with pytest.raises(ConfigError, match="no node can hold a run that needs CPU 4"):
        execute(planned(grid, records), records, asked, execution=Execution(devices=4))
    summary = execute(planned(grid, records), records, asked, execution=Execution(devices=2))
    cluster.remove_node(node)
    assert summary.outcomes == {"done": 1}, str(summary)
    (record,) = records.all()
    assert record.provenance["devices"] == 2
