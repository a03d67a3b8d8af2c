"""The preflight measures the network between the nodes of a cluster: here two of Ray's on one machine, over gloo."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from ray.cluster_utils import Cluster

from rubricem_env.testing.loopback import free_port
from trainers.verl_backend.planning.preflight import Machine, measure_node, network_warnings
from trainers.verl_backend.planning.run_shape import Assumptions, read_run_shape

SHAPE = read_run_shape(
    {
        "trainer": {"device": "cpu", "nnodes": 2, "n_gpus_per_node": 1, "total_training_steps": 1},
        "data": {"max_response_length": 20_000},
        "rubricem": {"almanac": {}},
    }
)


def test_two_processes_measure_what_an_all_reduce_moves_to_each():
    address = f"127.0.0.1:{free_port()}"
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        calls = [processes.submit(measure_node, rank, 2, address) for rank in range(2)]
        rates, apart = zip(*(call.result(timeout=120) for call in calls), strict=True)
    # between a MiB and 100 GiB a second: both see the same exchange
    assert all(1 / 1_024 < rate < 100 for rate in rates)
    assert max(rates) < 10 * min(rates)
    assert apart == (0, 0)


@pytest.fixture(scope="module")
def two_nodes():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()


def test_each_node_of_the_cluster_takes_part_and_a_link_far_below_the_assumed_one_is_warned_of(two_nodes, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", two_nodes)
    found = Machine().measure_nodes(2, 0)
    assert len(found) == 2
    assert list(network_warnings(SHAPE, Machine(), Assumptions(network_gib=0.001))) == []
    (warned,) = network_warnings(SHAPE, Machine(), Assumptions(network_gib=1e6))
    assert "an all-reduce between 2 nodes moves" in warned
    assert "a link has 1e+06" in warned
