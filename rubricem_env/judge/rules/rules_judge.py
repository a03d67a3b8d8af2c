"""The judge that needs no model: rules propose what separates the group, and score it with a quotation.

The rules read the policy's own text and the status of its calls. They never read tool pages, only the ids of the
snippets that were shown.
"""

from functools import partial

from rubricem_env.domain.judgement import RubricScore
from rubricem_env.judge.base import Contrast, Proposal, ScoringRequest, ScoringResult, present_stages
from rubricem_env.judge.reflections import CandidateScore, ReflectionTask
from rubricem_env.judge.rubrics.admission import refuse_rubric
from rubricem_env.judge.rubrics.separation import separating_rubrics
from rubricem_env.judge.rules.facts import gather_facts
from rubricem_env.judge.rules.free_rubrics import pooled_rules, score_by_terms
from rubricem_env.judge.rules.reflections import judge_reflections
from rubricem_env.judge.rules.rules import rules_for
from rubricem_env.scaffold.copies import ShownText


class RulesJudge:
    """Deterministic and offline.

    It reads what the policy wrote, never the pages, and follows no instruction in them.
    """

    name = "rules"

    async def propose(self, contrast: Contrast) -> Proposal:
        """The checks on which the group's attempts differ, those that separate it best first."""
        group = [gather_facts(contrast.question, parsed) for parsed in contrast.trajectories]
        shown = ShownText.in_trajectories(parsed.trajectory for parsed in contrast.trajectories)
        rules = rules_for(contrast.question, contrast.step, contrast.scaffold)
        rated = [
            (
                rule.rubric,
                [float(rule.score(facts).score) for facts in group if facts.parsed.happened(rule.rubric.stage)],
            )
            for rule in (*rules, *pooled_rules(group, rules))
        ]
        drafts = tuple(separating_rubrics(rated, contrast.scaffold.names))
        faults = [
            refuse_rubric(draft, shown, question=contrast.question, scaffold=contrast.scaffold) for draft in drafts
        ]
        admitted = tuple(draft for draft, fault in zip(drafts, faults, strict=True) if not fault)
        return Proposal(admitted, refused=tuple(filter(None, faults)))

    async def score(self, request: ScoringRequest) -> ScoringResult:
        """Scores for every rubric of a stage that happened: by its rule, or by its key terms where it has none."""
        facts = gather_facts(request.question, request.parsed)
        rules = {rule.rubric.id: rule.score for rule in rules_for(request.question, scaffold=request.parsed.scaffold)}
        there = set(present_stages(request.parsed))
        rubric_scores = {}
        for rubric in request.rubrics:
            if rubric.stage in there:
                score_facts = rules.get(rubric.id) or partial(score_by_terms, rubric)
                scored = score_facts(facts)
                rubric_scores[rubric.id] = RubricScore.whole(rubric.id, scored.score, scored.reason)
        return ScoringResult(rubric_scores)

    async def judge_reflections(self, task: ReflectionTask) -> tuple[CandidateScore, ...]:
        """Three dimensions for each candidate, against the rubrics that the judgement lost."""
        return judge_reflections(task)
