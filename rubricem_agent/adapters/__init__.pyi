from rubricem_agent.adapters.credit import (
    completion_of as completion_of,
    group_advantages as group_advantages,
    policy_runs as policy_runs,
    stage_advantages as stage_advantages,
    tokens_of as tokens_of,
)
from rubricem_agent.adapters.local_play import play_locally as play_locally
from rubricem_agent.adapters.trl import (
    StageGRPOTrainer as StageGRPOTrainer,
    TrlSpec as TrlSpec,
    research_spec as research_spec,
)
