"""Train a tiny random Qwen3 with TRL in the almanac, with stage advantages: python -m docs.adapters.trl_stages.

Three lines are this project's: the spec, the trainer's class, and the rollout function. The rest is any TRL script.
A random model writes nothing that a judge could tell apart, so a tutor writes the attempts here, in its tokens. With
a model of your own use `play_locally`.
"""

import sys
import tempfile

from trl import GRPOConfig

from docs.adapters.agent_side import stage_advantages
from docs.adapters.tutor import Tutor, tutored_query, tutored_questions
from docs.adapters.tutored_policy import play_tutored
from rubricem_env.adapters.trl import StageGRPOTrainer, TrlSpec
from rubricem_env.judge.buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.judge.scorer import GroupScorer
from rubricem_env.judge.step import StepJudge
from rubricem_env.testing.tiny_qwen3 import tiny_qwen3, tiny_tokenizer


def main() -> None:
    """Two optimiser steps; says how far they moved the weights."""
    write = Tutor(tutored_questions()[tutored_query().question], 0)
    tokenizer = tiny_tokenizer([write("")] * 3, vocab_size=600)
    model = tiny_qwen3(len(tokenizer), max_length=4_096)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    spec = TrlSpec(
        play=play_tutored(),
        scorer=GroupScorer(StepJudge(RulesJudge(), RubricBuffer())),
        advantages=stage_advantages,
        queries=[tutored_query()],
    )
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            max_steps=2,
            per_device_train_batch_size=4,
            num_generations=4,
            learning_rate=1e-3,
            beta=0.0,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            logging_steps=1,
        )
        trainer = StageGRPOTrainer(
            model,
            spec.reward_funcs,
            config,
            train_dataset=spec.train_dataset,
            rollout_func=spec.rollout_func,
            processing_class=tokenizer,
        )
        trainer.train()
    spec.close()
    moved = max(float((weight - before[name]).detach().abs().max()) for name, weight in model.named_parameters())
    sys.stdout.write(f"two steps moved the weights by at most {moved:.2e}\n")


if __name__ == "__main__":
    main()
