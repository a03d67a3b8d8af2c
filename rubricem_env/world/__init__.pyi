from rubricem_env.world.almanac import (
    Almanac as Almanac,
    load_questions as load_questions,
    shipped_corpus_path as shipped_corpus_path,
    shipped_questions_path as shipped_questions_path,
)
from rubricem_env.world.expert import AlmanacTeacher as AlmanacTeacher
from rubricem_env.world.expert_faults import Faults as Faults, draw_slips as draw_slips
from rubricem_env.world.judge import AlmanacJudge as AlmanacJudge, true_quality as true_quality
from rubricem_env.world.questions import Question as Question
from rubricem_env.world.tables.analyst import TableAnalyst as TableAnalyst
from rubricem_env.world.tables.analyst_faults import (
    AnalystFaults as AnalystFaults,
    draw_analyst_slips as draw_analyst_slips,
)
from rubricem_env.world.tables.criteria import (
    AnalysisEvidence as AnalysisEvidence,
    analysis_criteria as analysis_criteria,
    analysis_quality as analysis_quality,
)
from rubricem_env.world.tables.questions import TableQuestion as TableQuestion
from rubricem_env.world.tables.table_world import TableWorld as TableWorld
