"""One seed reaches everything that was given none of its own, in the settings of either trainer."""

from pathlib import Path

from trainers.local.settings import LocalConfig
from trainers.settings import with_run_seed
from trainers.verl_backend.settings import VerlSettings

LOCAL = LocalConfig(policy=Path("p"), out=Path("o"), seed=7)
VERL = VerlSettings.model_validate({"almanac": {}, "seed": 7}, strict=False)


def test_groups_of_keys_without_a_seed_have_the_runs():
    assert (with_run_seed(LOCAL, 7).reflection.seed, with_run_seed(LOCAL, 7).judge.settings.seed) == (7, 7)
    filled = with_run_seed(VERL, 7)
    assert (filled.reflection.seed, filled.judge.settings.seed) == (7, 7)


def test_a_seed_of_their_own_stays_and_so_does_everything_else():
    own = LOCAL.model_copy(update={"reflection": LOCAL.reflection.model_copy(update={"seed": 0})})
    filled = with_run_seed(own, 7)
    assert filled.reflection == own.reflection
    assert filled.model_copy(update={"judge": own.judge, "held_out_judge": own.held_out_judge}) == own
