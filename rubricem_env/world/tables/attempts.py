"""The truth about tables in the terms of trajectories and rubrics, as a judge and a trainer need it."""

from collections.abc import Mapping
from functools import lru_cache, partial
from types import MappingProxyType

from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.trajectory import AnswerFormat, Origin, Query
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.world.tables.criteria import REPORT, AnalysisEvidence, analysis_criteria
from rubricem_env.world.tables.questions import TableQuestion


def analysis_evidence(parsed: ParsedTrajectory) -> AnalysisEvidence:
    """What an attempt shows: its stages as the policy wrote them, and results from the text of the tools alone."""
    return AnalysisEvidence.of(
        {stage: parsed.stage_text(stage) for stage in parsed.stages},
        observations=(segment.text for segment in parsed.trajectory.segments if segment.origin is Origin.TOOL),
        calls=(turn.call.identity for turn in parsed.turns if turn.call is not None),
    )


@lru_cache(maxsize=4_096)
def table_criteria(question: TableQuestion) -> Mapping[Rubric, "partial[int]"]:
    """The true criteria of the question as rubrics, each with the true score of an `AnalysisEvidence`."""
    return MappingProxyType(
        {
            Rubric(
                stage=criterion.stage,
                title=criterion.title,
                description=criterion.description,
                polarity=criterion.polarity,
            ): criterion.true_score
            for criterion in analysis_criteria(question)
        }
    )


def table_query(question: TableQuestion) -> Query:
    """The question without its answer; the criteria of the report are its persistent rubrics."""
    return Query(
        question=question.question,
        answer_format=AnswerFormat.SHORT,
        rubrics=tuple(
            rubric.model_copy(update={"persistent": True})
            for rubric in table_criteria(question)
            if rubric.stage == REPORT
        ),
        source=f"tables:{question.id}",
    )
