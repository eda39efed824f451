"""Options and refusals of the executors beyond one machine, without their engines."""

import socket
import sys
import time

import pytest

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.engines import ray
from ablations.running.engines.slurm import SlurmOptions, limit
from ablations.running.execute import chosen, execute
from ablations.running.exit_codes import INTERRUPTED
from ablations.running.keeper import Ending
from lightning_modules.config import ConfigError
from lightning_modules.training.execution import Execution
from tests import tiny


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("slrum", r"there is no executor 'slrum'\. Did you mean 'slurm'\?"),
        ({"kind": "slurm", "partitoin": "gpu"}, r"executor option partitoin: .*Did you mean 'partition'\?"),
        ({"kind": "slurm", "gpus": 2}, "executor option gpus: .*1"),
        ({"kind": "slurm", "time": "1:00"}, "executor option time: .*'1:00'"),
        ({"kind": "slurm", "cluster": "lokal"}, r"executor option cluster: .*Did you mean 'local'\?"),
        ({"kind": "ray", "gpus": 1.5}, "executor option gpus: .*1"),
        ({"kind": "ray", "adress": "auto"}, r"executor option adress: .*Did you mean 'address'\?"),
        ({"kind": "ray", "address": "ray://head:10001"}, "executor option address: .*host:port"),
        ({"kind": "inline", "slots": 2}, "executor option slots: there is no such option"),
        (
            {"kind": "local", "gpus": 2},
            "executor option gpus: there is no such option. Allowed: fresh_process, runs_per_device, slots",
        ),
        ({"kind": "local", "slots": 0}, "executor option slots: .* not 0"),
        ({"kind": "local", "slots": "two"}, "executor option slots: .* not 'two'"),
        ({"kind": "local", "fresh_process": "no"}, "executor option fresh_process: .* not 'no'"),
    ],
)
def test_what_an_executor_does_not_know_is_refused(asked, said):
    with pytest.raises(ConfigError, match=said):
        chosen(asked)


@pytest.mark.parametrize(("executor", "package"), [("slurm", "submitit"), ("ray", "ray")])
def test_without_its_extra_an_executor_says_how_to_install_it(executor, package, tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, package, None)
    records = Records(tmp_path / "results")
    with pytest.raises(ConfigError, match=rf"pip install 'ablations\[{executor}\]'"):
        execute(plan(grids.read(tiny.grid(tmp_path)), "smoke", records=records), records, executor)
    assert list(records.all()) == []


@pytest.mark.parametrize(
    ("given", "seconds", "minutes"),
    [
        ({}, 10, 30),
        ({}, 3600, 120),
        ({"time": 60}, 3600, 60),
        ({"time": 60}, 4 * 3600, 60),
        ({"time": 60, "timeouts": 9}, 5 * 3600, 60),
    ],
)
def test_the_time_limit_follows_the_estimate_of_the_plan(given, seconds, minutes):
    assert limit(SlurmOptions(**given), seconds) == minutes


def test_a_time_limit_in_which_no_run_can_end_is_refused():
    with pytest.raises(ConfigError, match=r"about 300 minutes .* are 240. Raise time or timeouts"):
        limit(SlurmOptions(time=60), 5 * 3600)


@pytest.mark.parametrize(
    ("given", "nodes", "fit"),
    [
        ({}, [{"CPU": 8.0}], [8]),
        ({"cpus": 3}, [{"CPU": 8.0}, {"CPU": 2.0}], [2, 0]),
        ({}, [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0}], [2, 0]),
        ({"gpus": 0}, [{"CPU": 8.0, "GPU": 2.0}], [8]),
        ({"gpus": 0.1}, [{"CPU": 8.0, "GPU": 0.7}], [7]),
        ({"memory": 2}, [{"CPU": 8.0, "memory": 5e9}], [2]),
    ],
)
def test_as_many_runs_as_a_node_can_hold(given, nodes, fit):
    needs = ray.needs(ray.RayOptions(**given), nodes)
    assert [ray.fitting(needs, resources) for resources in nodes] == fit


def test_devices_that_share_a_run_are_on_one_node():
    needs = ray.needs(ray.RayOptions(cpus=2), [{"CPU": 8.0, "GPU": 4.0}], devices=3)
    assert ray.fitting(needs, {"CPU": 8.0, "GPU": 4.0}) == 1
    assert ray.fitting(needs, {"CPU": 8.0, "GPU": 2.0}) == 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kind": "ray", "gpus": 0.5}, "executor option gpus: 0.5 of a GPU is no device"),
        ("inline", "devices: this executor makes runs in one process each"),
        (
            {"kind": "slurm", "cluster": "local"},
            "devices: 3 .* training.batch_size 4 equally. Allowed: 1, 2, 4",
        ),
    ],
)
def test_what_devices_cannot_share_is_refused_before_any_engine_is_asked(asked, said, tmp_path):
    records = Records(tmp_path / "results")
    found = plan(grids.read(tiny.grid(tmp_path, seeds=1)), "smoke", records=records)
    with pytest.raises(ConfigError, match=said):
        execute(found, records, asked, execution=Execution(devices=3))


@pytest.mark.parametrize("executor", ["inline", "local", "ray"])
def test_several_nodes_share_a_run_under_slurm_alone(executor, tmp_path):
    records = Records(tmp_path / "results")
    found = plan(grids.read(tiny.grid(tmp_path, seeds=1)), "smoke", records=records)
    with pytest.raises(ConfigError, match="num-nodes: 2 machines share a run under --executor slurm alone"):
        execute(found, records, executor, execution=Execution(nodes=2))


def test_processes_that_stand_for_nodes_have_no_gpus_of_their_own():
    (problem,) = chosen({"kind": "slurm", "cluster": "local", "gpus": 1}).problems(Execution(nodes=2))
    assert "the same GPUs" in str(problem)
    assert list(chosen({"kind": "slurm", "gpus": 1}).problems(Execution(nodes=2))) == []


def test_a_cluster_that_has_lost_its_nodes_is_given_up_after_a_while(monkeypatch):
    class Stub:
        resources = [{"CPU": 2.0}]

        def nodes(self):
            return [{"NodeID": str(i), "Alive": True, "Resources": have} for i, have in enumerate(self.resources)]

    engine = chosen({"kind": "ray", "cpus": 1})
    engine._ray, engine._needs = Stub(), {"CPU": 1.0}
    assert engine.room() == 2
    engine._ray.resources = [{"memory": 1.0}]
    assert engine.room() == 0
    monkeypatch.setattr(ray, "_BEREFT", -1.0)
    with pytest.raises(ConfigError, match="no node can hold a run"):
        engine.room()
    engine._ray.resources = [{"CPU": 1.0}]
    assert engine.room() == 1, "a node came back"


def test_a_task_on_a_node_that_ray_has_given_up_is_put_back_though_ray_waits_for_it(tmp_path):
    class Stub:
        alive = ["one", "other"]

        def nodes(self):
            return [{"NodeID": name, "Alive": name in self.alive, "Resources": {"CPU": 1.0}} for name in self.alive]

        def wait(self, tasks, timeout):
            return [], tasks

    engine, node = chosen({"kind": "ray"}), tmp_path / "diary.jsonl.node"
    engine._ray, engine._needs = Stub(), {"CPU": 1.0}
    job = (object(), frozenset({"one", "other"}), node)
    engine.room()
    assert engine.ending(job) is None, "it waits for a node"
    node.write_text("one")
    assert engine.ending(job) is None
    Stub.alive = ["other"]
    engine.room()
    assert engine.ending(job) == Ending(INTERRUPTED)
    node.write_text("new")
    Stub.alive = ["other", "new"]
    assert engine.ending(job) is None, "a node that has come since the last look"


def test_a_cluster_that_answers_is_taken_and_one_that_refuses_says_why(tmp_path, monkeypatch):
    """A module that stands for Ray takes a single address."""
    stub = "def init(address, **_):\n    if address != 'auto':\n        raise OSError('other')\n"
    (tmp_path / "ray.py").write_text(stub)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ray.answers("auto", 30.0)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with pytest.raises(ConfigError, match="OSError: other"):
            ray.answers(f"127.0.0.1:{listening.getsockname()[1]}", 30.0)


def test_an_address_nobody_answers_at_is_refused_in_time():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ConfigError, match=f"no Ray cluster answers at {address}.*ray start --head"):
            ray.answers(address, 5.0)
        free.listen()  # it takes connections and says nothing
        with pytest.raises(ConfigError, match=f"no Ray cluster answers at {address}"):
            ray.answers(address, 1.0)
        assert time.monotonic() - began < 10
    with pytest.raises(ConfigError, match="'head' is not host:port or auto"):
        ray.answers("head", 5.0)
