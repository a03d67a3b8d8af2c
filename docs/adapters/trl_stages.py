"""Train with TRL in the almanac, with stage advantages: python -m docs.adapters.trl_stages.

Three lines are this project's: the spec, the trainer's class, and what the trainer takes from the spec. The rest is
any TRL script. The model is the trained tiny policy; where there is none it is a random Qwen3, and since that writes
nothing that a judge could tell apart, the tutor writes the attempts in its tokens.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from rubricem_agent.adapters import StageGRPOTrainer, TrlSpec, research_spec, stage_advantages  # first: names the extra

# isort: split
from transformers import AutoTokenizer
from trl import GRPOConfig

from docs.adapters.policy_writers import TURN_TOKENS
from docs.adapters.tutor import Tutor, tutored_query, tutored_questions
from docs.adapters.tutored_policy import play_tutored
from docs.adapters.writers import policy_folder
from rubricem_agent.policy import TINY_SYSTEM, load_model
from rubricem_agent.prompting import agent_prompt
from rubricem_env.adapters import offline_scorer
from rubricem_env.testing import tiny_qwen3, tiny_tokenizer


def settings(folder: str, **others: Any) -> GRPOConfig:
    """Two steps of one group of four, on a CPU."""
    return GRPOConfig(
        output_dir=folder,
        max_steps=2,
        per_device_train_batch_size=4,
        num_generations=4,
        beta=0.0,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        logging_steps=1,
        **others,
    )


def trained(folder: Path) -> tuple[Any, Any, TrlSpec]:
    """The trained policy, which plays for itself."""
    prompt = agent_prompt((), system=TINY_SYSTEM)
    spec = research_spec(queries=[tutored_query()], prompt=prompt, max_turn_tokens=TURN_TOKENS)
    return load_model(folder), AutoTokenizer.from_pretrained(folder, local_files_only=True), spec


def tutored() -> tuple[Any, Any, TrlSpec]:
    """A random model, for which the tutor writes."""
    write = Tutor(tutored_questions()[tutored_query().question], 0)
    tokenizer = tiny_tokenizer([write("")] * 3, vocab_size=600)
    scorer = offline_scorer([tutored_query()])
    spec = TrlSpec(play=play_tutored(), scorer=scorer, advantages=stage_advantages, queries=[tutored_query()])
    return tiny_qwen3(len(tokenizer), max_length=4_096), tokenizer, spec


def main() -> None:
    """Two optimiser steps; says who wrote, and how far they moved the weights."""
    policy = policy_folder()
    model, tokenizer, spec = tutored() if policy is None else trained(policy)
    sys.stdout.write(f"written by {'the tutor (no trained policy was found)' if policy is None else policy}\n")
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        config = settings(folder, learning_rate=1e-3 if policy is None else 1e-4)
        trainer = StageGRPOTrainer(model, args=config, processing_class=tokenizer, **spec.trainer_arguments)
        trainer.train()
    spec.close()
    moved = max(float((weight - before[name]).detach().abs().max()) for name, weight in model.named_parameters())
    sys.stdout.write(f"two steps moved the weights by at most {moved:.2e}\n")


if __name__ == "__main__":
    main()
