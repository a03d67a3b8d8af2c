"""A rollout: its record has the trajectory, and the trajectory is parsed at most once."""

import json

from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import attempt
from rubricem_records.rollouts.rollouts import Rollout, RolloutTrajectory


def test_the_record_of_a_rollout_holds_its_trajectory_and_not_what_was_parsed():
    parsed = parse_trajectory(attempt())

    written = Rollout(trajectory=RolloutTrajectory.of_parsed(parsed), policy="p").model_dump_json()

    assert written == Rollout(trajectory=attempt(), policy="p").model_dump_json()
    assert json.loads(written)["trajectory"] == attempt().model_dump(mode="json")
    assert Rollout.model_validate_json(written) == Rollout(trajectory=attempt(), policy="p")


def test_a_rollout_carries_what_its_episode_has_parsed_and_so_do_its_copies():
    parsed = parse_trajectory(attempt())
    rollout = Rollout(trajectory=RolloutTrajectory.of_parsed(parsed), policy="p")

    assert rollout.parsed is parsed
    assert rollout.model_copy(update={"tokens": None}).parsed is parsed
    assert rollout.trajectory is parsed.trajectory


def test_a_rollout_from_a_file_is_parsed_on_first_use_and_never_again():
    rollout = Rollout.model_validate_json(Rollout(trajectory=attempt(), policy="p").model_dump_json())

    assert rollout.parsed is rollout.parsed
    assert rollout.parsed.answer == parse_trajectory(attempt()).answer
