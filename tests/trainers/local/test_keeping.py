"""What a run leaves on a disk that is full, or that is left in the middle of a line."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rubricem_agent.files import trim_log
from rubricem_agent.learn.checkpoint import checkpoint_steps, find_checkpoint, load_checkpoint
from rubricem_env.domain.errors import UsageError
from trainers.local.checkpoint import save_policy, save_run
from trainers.local.setup import make_parts


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """A file that would grow beyond so many bytes is refused by the system, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# 100 bytes are too few for any part, 5,000 for the curriculum, 50,000 for the weights.
@pytest.mark.parametrize("num_bytes", [100, 5_000, 50_000])
def test_a_full_disk_leaves_the_earlier_checkpoint_whole_and_nothing_else(config, num_bytes):
    parts = make_parts(config)
    save_run(parts, 1)
    with room_for(num_bytes), pytest.raises(UsageError, match="make room and resume"):
        save_run(parts, 2)
    root = config.out / "checkpoints"
    assert [path.name for path in root.iterdir()] == ["step-000001"]
    assert load_checkpoint(find_checkpoint(root)).step == 1
    save_run(parts, 2)
    assert checkpoint_steps(root) == [1, 2]


def test_a_full_disk_at_the_end_is_one_sentence_with_the_way_out(config):
    parts = make_parts(config)
    with room_for(50_000), pytest.raises(UsageError, match="the same command writes the policy"):
        save_policy(parts)


def test_a_log_that_cannot_be_trimmed_is_still_there(tmp_path):
    log = tmp_path / "metrics.jsonl"
    written = "".join(f'{{"step": {step}, "a": 0}}\n' for step in range(1, 200))
    log.write_text(written)
    with (
        room_for(1_000),
        pytest.raises(UsageError, match=r"steps after 150 .*: File too large\. .* the same command"),
    ):
        trim_log(log, 150)
    assert log.read_text() == written
