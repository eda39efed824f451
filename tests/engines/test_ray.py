"""The executor of Ray on a cluster of two nodes, one of which dies in the middle of a grid."""

import time

import pytest

from ablations.core.store import Records
from ablations.running.execute import execute
from ablations.study import Study
from lightning_modules.config import ConfigError
from tests.engines.conftest import planned
from tests.faults.support import attempts, contents

cluster_utils = pytest.importorskip("ray.cluster_utils")


@pytest.fixture
def cluster():
    """A head without cores, to which tests add nodes."""
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    made.shutdown()


def test_a_node_that_dies_loses_nothing(undisturbed, records, cluster):
    grid, folder, expected = undisturbed
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    begun, ended = set(), []

    def tell(event):
        if event.kind == "progress":
            begun.add(event.run_id)
        if len(begun) == 2 and not ended:
            cluster.remove_node(nodes[0], allow_graceful=False)
            ended.append(time.monotonic())

    asked = {"kind": "ray", "address": cluster.address}
    summary = execute(planned(grid, records), records, asked, retries=0, on_event=tell)
    assert ended
    assert (summary.outcomes, summary.executed) == ({"done": 2}, 2)
    assert contents(records) == expected
    told = attempts(records)
    assert sorted(len([line for line in lines if "started" in line]) for lines in told.values()) == [1, 2]
    assert all(len([line for line in lines if "done" in line]) == 1 for lines in told.values())
    tables = [str(Study(grid, "smoke", results_dir=place).table()) for place in (records.folder, folder)]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(("asked", "said"), [({"gpus": 1}, "GPU 1"), ({"cpus": 64}, "CPU 64")])
def test_what_no_node_can_hold_is_refused(undisturbed, records, cluster, asked, said):
    cluster.add_node(num_cpus=1)
    with pytest.raises(ConfigError, match=f"no node can hold a run that needs .*{said}.*CPU 1"):
        execute(planned(undisturbed[0], records), records, {"kind": "ray", "address": cluster.address, **asked})
    assert isinstance(records, Records)
    assert list(records.all()) == []
