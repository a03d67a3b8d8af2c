from rubricem_records.bank.bank_items import BankItem as BankItem
from rubricem_records.evaluations.logs import AnswerRecord as AnswerRecord, VerdictRecord as VerdictRecord
from rubricem_records.evaluations.manifest import (
    EvaluationManifest as EvaluationManifest,
    read_manifest as read_manifest,
)
from rubricem_records.evaluations.scores import Scores as Scores, read_scores as read_scores
from rubricem_records.evaluations.statistics import (
    bootstrap_mean as bootstrap_mean,
    paired_bootstrap as paired_bootstrap,
)
from rubricem_records.rollouts.atif import dump_atif as dump_atif, to_atif as to_atif
from rubricem_records.rollouts.attempts import load_attempt as load_attempt, read_attempts as read_attempts
from rubricem_records.rollouts.recorded_attempt import RecordedAttempt as RecordedAttempt
from rubricem_records.rollouts.rollout_tokens import RolloutTokens as RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout as Rollout
from rubricem_records.rollouts.run_record import GroupEntry as GroupEntry, RolloutEntry as RolloutEntry
from rubricem_records.rollouts.run_recorder import RunRecorder as RunRecorder
from rubricem_records.runs.following import follow_log as follow_log
from rubricem_records.runs.recorded_run import RecordedRun as RecordedRun, read_run as read_run
from rubricem_records.runs.run_log import RunLog as RunLog, read_log as read_log
