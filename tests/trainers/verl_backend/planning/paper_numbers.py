"""The paper's settings by the keys of veRL's config and of ours; tests compare our files with them."""

from collections.abc import Mapping

PAPER: Mapping[str, object] = {
    "data.train_batch_size": 32,
    "actor_rollout_ref.rollout.n": 8,
    "data.max_prompt_length": 8_192,
    "data.max_response_length": 18_432,
    "actor_rollout_ref.actor.optim.lr": 5e-7,
    "actor_rollout_ref.actor.optim.lr_scheduler_type": "constant",
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.kl_loss_coef": 0.001,
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
    "actor_rollout_ref.rollout.temperature": 1.0,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True,
    "trainer.total_training_steps": 1_400,
    "trainer.nnodes": 4,
    "trainer.n_gpus_per_node": 8,
    "trainer.save_freq": 10,
    "rubricem.window": 3,
    "rubricem.limits.max_calls": 10,
    "rubricem.limits.max_tokens": 18_432,
    "rubricem.matrix": [[1.0, 0.4, 0.6, 0.8], [0.0, 1.0, 0.4, 0.8], [0.0, 0.0, 1.0, 0.8], [0.0, 0.0, 0.0, 1.0]],
    "rubricem.judge.settings.caps": {"plan": 3, "research": 2, "review": 2, "answer": 3},
    "rubricem.bank.retrieval.top_k": 2,
    "rubricem.bank.embedder": "qwen3-embedding-0.6b",
    "rubricem.reflection.num_candidates": 8,
    "rubricem.reflection.temperature": 0.7,
}
"""Section E.1 and appendix D, by the key that holds each number, for the whole recipe."""

ABLATIONS = {
    "verl_ssgrpo_8b": ("stages", False),
    "verl_answer_only_8b": ("answer_only", False),
    "verl_meta_policy_8b": ("answer_only", True),
}
"""Credit and meta-policy of each file of the ablation (figure 6)."""
ABLATION_BUDGET = {"trainer.total_training_steps": 600, "trainer.nnodes": 2}
"""Of each run of the ablation (section E.1)."""


def numbers_of(name: str) -> dict[str, object]:
    """What the paper says of the recipe in a file."""
    if name not in ABLATIONS:
        return dict(PAPER)
    credit, meta_policy = ABLATIONS[name]
    return {**PAPER, **ABLATION_BUDGET, "rubricem.credit": credit, "rubricem.meta_policy": meta_policy}
