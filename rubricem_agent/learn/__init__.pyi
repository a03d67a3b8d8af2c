from rubricem_agent.learn.checkpoint import load_checkpoint as load_checkpoint, save_checkpoint as save_checkpoint
from rubricem_agent.learn.credit import (
    PAPER_MATRIX as PAPER_MATRIX,
    Credit as Credit,
    CreditSettings as CreditSettings,
    assign_credit as assign_credit,
    check_matrix as check_matrix,
    count_tokens as count_tokens,
    credit_judged as credit_judged,
    spread_to_tokens as spread_to_tokens,
)
from rubricem_agent.learn.credit_methods import stage_returns as stage_returns
from rubricem_agent.learn.curriculum import Curriculum as Curriculum, Encounter as Encounter, QueryBatch as QueryBatch
from rubricem_agent.learn.deferred import Deferred as Deferred
from rubricem_agent.learn.samples import Sample as Sample, pad_batch as pad_batch
from rubricem_env.judge.masking import group_scores as group_scores
from rubricem_records.runs.run_log import RunLog as RunLog, read_log as read_log
