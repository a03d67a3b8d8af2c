from rubricem_agent.rollout.report import render_report as render_report
from rubricem_agent.rollout.run import (
    Attempt as Attempt,
    RolloutContext as RolloutContext,
    run_episode as run_episode,
    run_groups as run_groups,
)
from rubricem_agent.rollout.token_labels import label_tokens as label_tokens
from rubricem_records.rollouts.rollout_tokens import RolloutTokens as RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout as Rollout
