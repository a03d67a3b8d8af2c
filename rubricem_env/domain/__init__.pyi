from rubricem_env.domain.base import (
    STAGES as STAGES,
    Count as Count,
    PositiveCount as PositiveCount,
    Span as Span,
    Stage as Stage,
    StageSpans as StageSpans,
)
from rubricem_env.domain.errors import (
    BoundaryError as BoundaryError,
    ConfigError as ConfigError,
    FileFormatError as FileFormatError,
    JudgeError as JudgeError,
    MissingExtraError as MissingExtraError,
    ModelError as ModelError,
    RubricEMError as RubricEMError,
    ToolError as ToolError,
    UsageError as UsageError,
)
from rubricem_env.domain.judgement import (
    Judgement as Judgement,
    Polarity as Polarity,
    Provenance as Provenance,
    Rubric as Rubric,
    StageScore as StageScore,
    Unscored as Unscored,
    UnscoredReason as UnscoredReason,
)
from rubricem_env.domain.reflection import Reflection as Reflection, ReflectionScore as ReflectionScore
from rubricem_env.domain.scaffold import Scaffold as Scaffold
from rubricem_env.domain.stage_set import (
    DEEP_RESEARCH as DEEP_RESEARCH,
    StageSet as StageSet,
    read_stage_set as read_stage_set,
)
from rubricem_env.domain.trajectory import (
    AnswerFormat as AnswerFormat,
    Ending as Ending,
    Observation as Observation,
    Origin as Origin,
    Query as Query,
    Segment as Segment,
    Snippet as Snippet,
    ToolCall as ToolCall,
    ToolResult as ToolResult,
    ToolStatus as ToolStatus,
    Trajectory as Trajectory,
    dump_trajectory as dump_trajectory,
    load_trajectory as load_trajectory,
    query_key as query_key,
)
