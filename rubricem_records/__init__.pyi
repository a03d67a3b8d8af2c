from rubricem_records.bank_items import BankItem as BankItem
from rubricem_records.evaluation_logs import AnswerRecord as AnswerRecord, VerdictRecord as VerdictRecord
from rubricem_records.evaluation_manifest import (
    EvaluationManifest as EvaluationManifest,
    read_manifest as read_manifest,
)
from rubricem_records.evaluation_scores import Scores as Scores, read_scores as read_scores
from rubricem_records.following import follow_log as follow_log
from rubricem_records.recorded_run import RecordedRun as RecordedRun, read_run as read_run
from rubricem_records.rollout_tokens import RolloutTokens as RolloutTokens
from rubricem_records.rollouts import Rollout as Rollout
from rubricem_records.run_log import RunLog as RunLog, read_log as read_log
from rubricem_records.run_record import GroupEntry as GroupEntry, RolloutEntry as RolloutEntry
from rubricem_records.run_recorder import RunRecorder as RunRecorder
from rubricem_records.statistics import bootstrap_mean as bootstrap_mean, paired_bootstrap as paired_bootstrap
