"""A recorded run of any stages, written as a trainer writes it."""

import json

from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.judge.judgements import RolloutJudgement
from rubricem_records.rollouts.packed_tokens import pack_tokens
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry
from rubricem_records.rollouts.run_recorder import RunRecorder
from tests.fakes import rubric
from tests.scaffolds import attempt_of


def record_run(folder, scaffold, attempts=3, *, rubrics=(), rubric_scores=(), trajectory=None, window_starts=(0,)):
    """Two steps, a group each, whose attempts score 0, 1/2 and 1 in every stage."""
    names = scaffold.names
    recorder = RunRecorder(folder / "record", stages=names)
    recorder.begin(0, embedder="hashing")
    (folder / "record" / "lessons.jsonl").unlink()
    held = rubric("Says what was asked.", names[-1])
    tokens = RolloutTokens(
        ids=(0, *range(len(names)), 0),
        stage_ids=(-1, *range(len(names)), -1),
        logprobs=(0.0, *([-0.5] * len(names)), 0.0),
        prompt_length=1,
        window_starts=window_starts,
    )
    for step in (1, 2):
        group = GroupEntry(
            step=step, place=0, encounter="new", query_key="k", question="What?", rubrics=rubrics or (held,)
        )
        entries = [
            RolloutEntry(
                step=step,
                place=0,
                attempt=number,
                rollout=Rollout(trajectory=trajectory or attempt_of(scaffold), policy="scripted"),
                tokens=pack_tokens(tokens),
                judged=RolloutJudgement(
                    judgement=Judgement.of({name: StageScore(score=number / 2) for name in names}, names),
                    rubric_scores=rubric_scores,
                ),
                true=tuple(place / 10 for place in range(len(names))),
                advantages=tuple(place - 1.0 for place in range(len(names))),
                trained=True,
            )
            for number in range(attempts)
        ]
        recorder.record_step([(group, entries)])
    (folder / "config.json").write_text(json.dumps({"credit": "stages", "steps": 2, "scaffold": scaffold.name}))
    even = dict.fromkeys(names, 0.5)
    lines = [
        {"step": 0, "held_out": dict.fromkeys(names, 0.25), "valid": 1.0},
        *({"step": step, "encounter": "new", "true": even, "judged": even, "spread": even} for step in (1, 2)),
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
