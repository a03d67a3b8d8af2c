from rubricem_agent.adapters.credit import group_advantages as group_advantages, stage_advantages as stage_advantages
from rubricem_agent.adapters.local_play import play_locally as play_locally
from rubricem_agent.adapters.trl import research_spec as research_spec
from rubricem_env.adapters.trl import StageGRPOTrainer as StageGRPOTrainer
