"""Weights through Ray's object store: every receiver gets all of them as they were, in their order."""

import sys

import pytest
import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngineRegistry

from trainers.verl_backend.cpu.transport import RayTransport
from trainers.verl_backend.verl_names import RAY

WEIGHTS = {
    "embed": torch.arange(64, dtype=torch.float32).view(16, 4),
    "norm": torch.ones(4, dtype=torch.bfloat16),
    "head": torch.full((1, 64), 0.5, dtype=torch.float16, requires_grad=True),
    "last": torch.tensor(3, dtype=torch.int64),
}
"""Of which two are larger than a bucket of 100 bytes."""


class End:
    """A process with one end of the transport."""

    def __init__(self, is_sender: bool) -> None:
        self.transport = RayTransport(bucket_size=100, is_master=is_sender)

    def do(self, name, **told):
        return getattr(self.transport, name)(**told)

    async def send(self):
        await self.transport.send_weights(iter(WEIGHTS.items()))

    async def receive(self):
        return [pair async for pair in self.transport.receive_weights()]


@pytest.fixture(scope="module")
def cluster():
    # By value: to Ray's processes `tests` is a package that comes with veRL.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=4, include_dashboard=False, configure_logging=False)
    yield
    ray.shutdown()


def test_two_engines_get_what_the_first_of_two_trainers_has(cluster):
    actors = [ray.remote(End).remote(is_first) for is_first in (True, False)]
    engines = [ray.remote(End).remote(False) for _ in range(2)]
    for _ in range(2):
        told = ray.get([end.do.remote("prepare") for end in [*actors, *engines]])
        of_actors, of_engines = RayTransport.build_topology(2, 2, told)
        queues = [*of_actors["queue"], *of_engines["queue"]]
        ends = [*actors, *engines]
        ray.get([end.do.remote("init_process_group", queue=queue) for end, queue in zip(ends, queues, strict=True)])
        # Before there is anything to receive.
        coming = [end.receive.remote() for end in engines]
        ray.get([end.send.remote() for end in actors])
        for received in ray.get(coming):
            assert [name for name, _ in received] == list(WEIGHTS)
            assert all(torch.equal(tensor, WEIGHTS[name]) for name, tensor in received)
            assert all(tensor.dtype == WEIGHTS[name].dtype for name, tensor in received)
        ray.get([end.do.remote("finalize") for end in ends])


def test_it_is_known_to_verl_by_its_name():
    assert CheckpointEngineRegistry.get(RAY) is RayTransport
