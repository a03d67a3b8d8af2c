from rubricem_agent.data.chatml import ChatTurn as ChatTurn
from rubricem_agent.evals.benchmark import Benchmark as Benchmark, Loaded as Loaded
from rubricem_agent.evals.dataset import (
    DataPaths as DataPaths,
    Dataset as Dataset,
    Example as Example,
    Gold as Gold,
    required as required,
)
from rubricem_agent.evals.files import (
    FileRow as FileRow,
    assemble as assemble,
    csv_rows as csv_rows,
    json_array as json_array,
    json_lines as json_lines,
    read_numbered as read_numbered,
    read_row as read_row,
)
from rubricem_agent.evals.grading import (
    Case as Case,
    Grade as Grade,
    Grader as Grader,
    Grading as Grading,
    GradingQuestion as GradingQuestion,
    mean_metrics as mean_metrics,
    mean_score as mean_score,
    replay as replay,
)
from rubricem_agent.evals.rules import drtulu_rules as drtulu_rules, official_rules as official_rules
from rubricem_agent.evals.runner import Runner as Runner
from rubricem_agent.evals.scoring import score_run as score_run
from rubricem_agent.evals.scoring_error import ScoringError as ScoringError
from rubricem_agent.evals.suite import SUITE as SUITE, load_benchmark as load_benchmark, rules_for as rules_for
from rubricem_records.evaluations.rules import EvaluationMode as EvaluationMode, Rules as Rules
from rubricem_records.evaluations.statistics import (
    bootstrap_mean as bootstrap_mean,
    paired_bootstrap as paired_bootstrap,
)
