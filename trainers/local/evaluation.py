"""Evaluates the policy on held-out questions, and audits the training judge with a held-out judge."""

from typing import Any

from rubricem_agent.learn.held_out import answer_held_out, mean_judged, mean_quality, record_evaluation
from rubricem_agent.progress import progress_lines
from rubricem_records.runs.run_log import METRICS_FILE

from .run import Run
from .sampling import JudgedStep


async def evaluate_step(run: Run, step: int) -> None:
    """Evaluate the policy of a step on the held-out questions, and write the scores into the run's log."""
    if not run.held_out:
        return
    config = run.config
    rollouts = await answer_held_out(
        run.policy,
        run.held_out,
        prompt=run.prompt,
        toolbox=run.toolbox,
        limits=config.limits,
        context=config.context,
        max_turn_tokens=config.max_turn_tokens,
        seed=config.seed,
        step=step,
    )
    # More questions than rows wait for each other, so what is learnt of them depends on the threads' speed.
    run.policy.forget_drafts()
    trajectories = [rollout.parsed for rollout in rollouts]
    log, judge = config.out / METRICS_FILE, run.judge
    if run.truth:
        scores = mean_quality([run.truth[query.key] for query in run.held_out], trajectories)
        record_evaluation(log, step, scores, trajectories)
    else:
        what = f"step {step}: the judge scores {len(trajectories)} held-out answers"
        with progress_lines(lambda elapsed: f"{what}; {elapsed:.0f} s"):
            scores = await mean_judged(
                judge.judge,
                run.held_out,
                trajectories,
                settings=judge.settings,
                step=step,
                stage_set=judge.stage_set,
            )
        record_evaluation(log, step, scores, trajectories, by="judge")


async def audit_scores(run: Run, judged: JudgedStep, step: int) -> dict[str, Any]:
    """The training judge's scores beside the held-out judge's, on an audited step; nothing on others."""
    if run.audit is None or step % run.config.held_out_judge.every:
        return {}
    audit = await run.audit.examine(judged.groups, judged.judgements)
    return {"audit": audit.model_dump()}
