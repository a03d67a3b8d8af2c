"""What a local run writes: its checkpoints and its policy, its log, and the record for the viewer.

A checkpoint holds weights, moments, curriculum, rubrics, bank and deferred work under one manifest. The record holds
groups, rollouts and bank.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from transformers import AutoTokenizer

from rubricem_agent.config.tools import ToolsConfig
from rubricem_agent.learn.checkpoint import json_part, latest_checkpoint, save_checkpoint
from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.held_out import answer_held_out, mean_judged, mean_quality, record_evaluation
from rubricem_agent.learn.metrics import METRICS_FILE
from rubricem_agent.learn.record import record_group
from rubricem_agent.memory.snapshot import load_snapshot, save_snapshot
from rubricem_agent.policy.base import SYSTEM_FILE, model_folder
from rubricem_env.domain.errors import UsageError

from ..fine_tuning.checkpoint import disk_refusals, learning_parts, restore
from ..lora import merge_adapter, save_adapter
from .settings import LocalConfig
from .setup import JudgedStep, Parts


def save_run(parts: Parts, step: int) -> None:
    """Write the checkpoint of a step."""
    root = parts.config.out / "checkpoints"
    states = {
        "curriculum": parts.curriculum.state_dict(),
        "judge": parts.judge.state_dict(),
        "deferred": parts.deferred.state_dict(),
        "learner": {"updates": parts.learner.updates},
    }
    if parts.audit is not None:
        states["audit"] = parts.audit.state_dict()
    items = {name: json_part(state, file=f"{name}.json", step=step) for name, state in states.items()}
    items["bank"] = ("bank.npz", lambda path: save_snapshot(parts.bank, path, step=step), step)
    learner = parts.learner
    items |= learning_parts(step, model=learner.policy, optimizer=learner.optimizer, identity=_identity(parts.config))
    save_checkpoint(root, step=step, parts=items)


def resume_run(parts: Parts) -> int:
    """Load the latest checkpoint, if there is one; returns its step, or 0.

    Raises:
        UsageError: it is damaged, or belongs to a run with other settings.
    """
    checkpoint = latest_checkpoint(parts.config.out / "checkpoints")
    if checkpoint is None:
        return 0
    learner = parts.learner
    with checkpoint.restoring():
        saved, identity = checkpoint.read_json("progress")["identity"], _identity(parts.config)
        identity = saved if _reread(saved, parts.config) == identity else identity
        restore(checkpoint, model=learner.policy, optimizer=learner.optimizer, identity=identity)
        curriculum, updates = checkpoint.read_json("curriculum"), checkpoint.read_json("learner")["updates"]
        if curriculum["step"] != checkpoint.step or type(updates) is not int or updates < 0:
            raise UsageError(
                f"{checkpoint.folder} holds a curriculum of step {str(curriculum['step'])[:40]} and {str(updates)[:40]} "
                f"updates, which no run has saved at step {checkpoint.step}. Resume from another checkpoint."
            )
        parts.curriculum.load_state_dict(curriculum)
        parts.judge.load_state_dict(checkpoint.read_json("judge"))
        parts.deferred.load_state_dict(checkpoint.read_json("deferred"))
        learner.updates = updates
        if parts.audit is not None and "audit" in checkpoint.parts:
            parts.audit.load_state_dict(checkpoint.read_json("audit"))
        load_snapshot(parts.bank, checkpoint.path("bank"), step=checkpoint.step)
    return checkpoint.step


def save_policy(parts: Parts) -> None:
    """Write the policy with its tokenizer as transformers loads it; with LoRA its updates too, in OUT/adapter.

    Raises:
        UsageError: the disk refuses.
    """
    config, model = parts.config, parts.learner.policy
    folder, source = config.out / "model", model_folder(config.policy)
    try:
        with disk_refusals():
            if config.lora is None:
                model.save_pretrained(folder)
                AutoTokenizer.from_pretrained(source, local_files_only=True).save_pretrained(folder)
            else:
                save_adapter(model, config.out / "adapter", base=str(source.resolve()), settings=config.lora)
                merge_adapter(config.out / "adapter", folder)
            if config.system:
                (folder / SYSTEM_FILE).write_text(config.system + "\n", encoding="utf-8")
    except OSError as cause:
        raise UsageError(
            f"cannot write the policy to {folder}: {cause.strerror or cause}. "
            "The last checkpoint is whole; make room, and the same command writes the policy."
        ) from cause


_CHANGEABLE: Mapping[str, Any] = {
    **dict.fromkeys(("steps", "out", "evaluate_every", "checkpoint_every"), True),
    "judge": {"rates", "ceilings", "timeout", "hedge_after"},
    "tools": ToolsConfig.model_fields.keys() - {"backend", "corpus"},
}
"""What a resumed run may have otherwise: its length and folder, how often it saves or evaluates, limits and engines."""


def _identity(config: LocalConfig) -> str:
    """The settings that a resumed run must share."""
    return config.model_dump_json(exclude=dict(_CHANGEABLE))


def _reread(saved: str, config: LocalConfig) -> str:
    """The identity that an earlier release wrote, with the settings that it did not have yet; or as it is."""
    try:
        fields = {**json.loads(saved), "out": config.out}
        return _identity(LocalConfig.model_validate(fields, strict=False))
    except ValueError:
        return saved


def begin_record(parts: Parts, step: int) -> None:
    """Resume the record after `step`, the last one that is not repeated."""
    recorder = parts.recorder
    if recorder is None:
        return
    recorder.begin(step, embedder=parts.bank.embedder_name)
    tokenizer = parts.policy.tokenizer
    recorder.record_vocabulary(lambda: [tokenizer.decode([token_id]) for token_id in range(tokenizer.size)])


def record_step(parts: Parts, judged: JudgedStep, credit: Credit) -> None:
    """Record a step after its credit was assigned; the rows of `credit` follow the rollouts, group by group.

    Raises:
        UsageError: the disk refuses.
    """
    if parts.recorder is None:
        return
    entries = []
    for index, (rollouts, judgement) in enumerate(zip(judged.groups, judged.judgements, strict=True)):
        row = index * len(rollouts)
        recorded = record_group(
            judgement,
            rollouts,
            credit,
            rubrics=parts.judge.buffer.rubrics(judgement.query_key),
            encounter=judged.batch.encounter,
            question=parts.train[judgement.query_key].question,
            shown=judged.shown.get(judgement.query_key, ()),
            true=judged.true[row : row + len(rollouts)],
            place=index,
            first_row=row,
        )
        entries.append(recorded)
    parts.recorder.record_step(entries)
    parts.recorder.record_lessons(parts.bank.contents(since=parts.recorder.bank_revision), step=judged.batch.step)


async def evaluate_step(parts: Parts, step: int) -> None:
    """Evaluate the policy of a step on the held-out questions, and write the scores into the run's log."""
    if not parts.held_out:
        return
    config = parts.config
    rollouts = await answer_held_out(
        parts.policy,
        parts.held_out,
        prompt=parts.prompt,
        toolbox=parts.toolbox,
        limits=config.limits,
        max_turn_tokens=config.max_turn_tokens,
        seed=config.seed,
    )
    trajectories = [rollout.parsed for rollout in rollouts]
    log, judge = config.out / METRICS_FILE, parts.judge
    if parts.truth:
        scores = mean_quality([parts.truth[query.key] for query in parts.held_out], trajectories)
        record_evaluation(log, step, scores, trajectories)
    else:
        scores = await mean_judged(judge.judge, parts.held_out, trajectories, settings=judge.settings, step=step)
        record_evaluation(log, step, scores, trajectories, by="judge")


def say(step: int, steps: int, metrics: dict[str, Any]) -> None:
    """Print one line a step."""
    given = (metrics["true"] or metrics["judged"]).items()
    scores = " ".join(f"{name} {value:.2f}" for name, value in given if value is not None)
    seconds = sum(metrics["seconds"].values())
    sys.stdout.write(f"step {step}/{steps} {metrics['encounter']}: {scores}; bank {metrics['bank']}; {seconds:.1f} s\n")
    sys.stdout.flush()


async def audit_scores(parts: Parts, judged: JudgedStep, step: int) -> dict[str, Any]:
    """The training judge's scores beside the held-out judge's, on an audited step; nothing on others."""
    if parts.audit is None or step % parts.config.held_out_judge.every:
        return {}
    audit = await parts.audit.examine(judged.trajectories, judged.judgements)
    return {"audit": audit.model_dump()}
