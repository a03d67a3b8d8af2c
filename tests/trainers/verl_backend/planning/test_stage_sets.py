"""What a stage set says of a run's calls: the rubrics of an attempt, and whether anything is searched."""

from rubricem_env.domain.stage_set import DEEP_RESEARCH
from tests.scaffolds import DATA_ANALYSIS, WRITING
from trainers.verl_backend.planning.estimate import plan_calls
from trainers.verl_backend.planning.ranges import stage_set_assumptions
from trainers.verl_backend.planning.run_shape import Assumptions, read_run_shape


def shape_of(scaffold):
    config = {
        "data": {"train_batch_size": 4},
        "actor_rollout_ref": {"model": {"path": "m"}, "rollout": {"n": 4}},
        "trainer": {"total_training_steps": 2, "nnodes": 1, "n_gpus_per_node": 8},
        "rubricem": {
            "scaffold": scaffold,
            "questions": "q.jsonl",
            "tools": {"backend": "web" if scaffold == "deep_research" else "none"},
            "limits": {"max_tokens": 400},
            "meta_policy": False,
            "judge": {"judge": "gemini:gemini-3.1-pro"},
        },
    }
    return read_run_shape(config)


def test_the_defaults_are_deep_researchs_and_another_set_says_its_own():
    assert stage_set_assumptions(DEEP_RESEARCH) == {}
    # Caps of 3, 2, 2 and 3 as in deep research, and no tool.
    assert stage_set_assumptions(WRITING) == {"searches": 0.0}
    # Three caps of 3, and two rubrics of the data.
    assert stage_set_assumptions(DATA_ANALYSIS) == {"rubrics": 11.0}


def test_a_task_without_searches_plans_none():
    searched = {kind.what.partition(" ")[0] for kind in plan_calls(shape_of("deep_research"), Assumptions())}
    written = {kind.what.partition(" ")[0] for kind in plan_calls(shape_of("writing"), Assumptions(searches=0))}
    assert searched >= {"judge:", "google_search", "snippet_search"}
    assert written == {"judge:"}
