"""The paper's settings, row by row as its tables print them, by the keys of veRL's config and of ours.

Tests compare our files with them. The two tables of appendix F have no number; they are named by their section.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rubricem_agent.yaml_config import CONFIGS
from trainers.verl_backend.planning.run_shape import read_run_file
from trainers.verl_backend.settings import SECTION, read_section

SFT = "F.1.1 Supervised Fine-Tuning, key hyperparameters"
RL = "F.1.2 Reinforcement Learning, key hyperparameters"
MATRIX = "F.1.2, the stage-dependent matrix"
BUDGET = "F.1.2, the paragraph on data and budgets"
JUDGE = "C.4 Buffer Management and Implementation"
REFLECTIONS = "D.4 Trajectory Sampling and Candidate Generation"
LOSS = "F.3 Infrastructure"
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


class Row(NamedTuple):
    """A number of the paper, and the keys that hold it here."""

    table: str
    name: str
    printed: str
    keys: Mapping[str, object]


RL_ROWS = (
    Row(RL, "Algorithm", "GRPO / SS-GRPO", {"algorithm.adv_estimator": "rubricem"}),
    Row(RL, "Rollouts per prompt", "8", {f"{_ROLLOUT}.n": 8}),
    Row(RL, "Unique prompts per step", "32", {"data.train_batch_size": 32}),
    # One update takes all 32 x 8 attempts, once.
    Row(RL, "Effective batch size", "256 (32 x 8)", {f"{_ACTOR}.ppo_mini_batch_size": 32, f"{_ACTOR}.ppo_epochs": 1}),
    Row(RL, "Learning rate", "5e-7", {f"{_ACTOR}.optim.lr": 5e-7}),
    Row(RL, "LR scheduler", "Constant", {f"{_ACTOR}.optim.lr_scheduler_type": "constant"}),
    Row(RL, "KL coefficient", "0.001", {f"{_ACTOR}.use_kl_loss": True, f"{_ACTOR}.kl_loss_coef": 0.001}),
    Row(RL, "KL estimator", "KL3", {f"{_ACTOR}.kl_loss_type": "low_var_kl", "algorithm.use_kl_in_reward": False}),
    # The paper gives no number; 0.2 is that of DR Tulu's code. Equation 1 has no second clip.
    Row(
        RL,
        "Clip ratio",
        "PPO-style clipping",
        {f"{_ACTOR}.clip_ratio_low": 0.2, f"{_ACTOR}.clip_ratio_high": 0.2, f"{_ACTOR}.clip_ratio_c": 1e6},
    ),
    Row(RL, "Temperature", "1.0", {f"{_ROLLOUT}.temperature": 1.0, f"{_ROLLOUT}.top_p": 1.0}),
    Row(
        RL,
        "Max response length",
        "18,432 tokens",
        {"data.max_response_length": 18_432, "rubricem.limits.max_tokens": 18_432},
    ),
    Row(RL, "Max prompt length", "8,192 tokens", {"data.max_prompt_length": 8_192}),
    # 6,656 tokens on each of the 4 GPUs that share a sequence.
    Row(
        RL,
        "Max total (pack) length",
        "26,624 tokens",
        {
            f"{_ROLLOUT}.max_model_len": 26_624,
            f"{_ACTOR}.ppo_max_token_len_per_gpu": 6_656,
            f"{_ACTOR}.ulysses_sequence_parallel_size": 4,
            "rubricem.reflection.total_tokens": 26_624,
        },
    ),
    Row(RL, "Max tool calls per trajectory", "10", {"rubricem.limits.max_calls": 10}),
    # FSDP2 over all GPUs is what ZeRO-3 is.
    Row(
        RL,
        "DeepSpeed stage",
        "ZeRO-3 with CPU offloading",
        {
            f"{_ACTOR}.strategy": "fsdp2",
            f"{_ACTOR}.fsdp_config.param_offload": True,
            f"{_ACTOR}.fsdp_config.optimizer_offload": True,
        },
    ),
    Row(RL, "Gradient checkpointing", "Enabled", {"actor_rollout_ref.model.enable_gradient_checkpointing": True}),
    Row(
        RL,
        "Rubric buffer cap (per stage)",
        "3, 2, 2, 3",
        {"rubricem.judge.settings.caps": {"plan": 3, "research": 2, "review": 2, "answer": 3}},
    ),
    Row(RL, "Bank embedding model", "Qwen3-Embedding-0.6B", {"rubricem.bank.embedder": "qwen3-embedding-0.6b"}),
    Row(RL, "Retrieval top-k", "2", {"rubricem.bank.retrieval.top_k": 2}),
    # One attempt of a group is drawn: `draw_attempt` has no key.
    Row(RL, "Reflection trajectories sampled", "1", {}),
    Row(RL, "Windowed curriculum K", "3", {"rubricem.window": 3}),
    # The bank is saved with every checkpoint.
    Row(RL, "Bank save frequency", "Every 10 steps", {"trainer.save_freq": 10}),
    Row(
        MATRIX,
        "Lambda",
        "the upper triangle",
        {"rubricem.matrix": [[1.0, 0.4, 0.6, 0.8], [0.0, 1.0, 0.4, 0.8], [0.0, 0.0, 1.0, 0.8], [0.0, 0.0, 0.0, 1.0]]},
    ),
    Row(BUDGET, "Data", "rl-research/dr-tulu-rl-data", {"rubricem.questions": "data/dr_tulu_rl.jsonl"}),
    Row(
        REFLECTIONS,
        "Candidates and temperature",
        "n = 8, 0.7",
        {
            "rubricem.reflection.num_candidates": 8,
            "rubricem.reflection.temperature": 0.7,
        },
    ),
    # Six attempts are five retries.
    Row(JUDGE, "Retries", "up to 5", {"rubricem.judge.ask.retry.attempts": 6}),
    Row(LOSS, "Loss aggregation", "token-level", {f"{_ACTOR}.loss_agg_mode": "token-mean"}),
)
"""What every file of a recipe has."""

EXACT_ROWS = (
    Row(RL, "Judge model", "Gemini Flash", {"rubricem.judge.judge": "gemini:gemini-3-flash-preview"}),
    Row(
        RL, "Rubric generation model", "Gemini Flash", {"rubricem.judge.also": [], "rubricem.judge.proposers": "first"}
    ),
    Row(LOSS, "google_search", "Gemini-3-Flash", {"rubricem.tools.google_search.model": "gemini-3-flash-preview"}),
    Row(JUDGE, "Failed scoring", "terminal answer score only", {"rubricem.fallback": "broadcast"}),
    Row(JUDGE, "Above its cap", "lowest discrimination are removed", {"rubricem.judge.settings.retires_flat": False}),
    Row(
        "C.2 Adaptive Rubric Generation",
        "Gates",
        "none",
        {
            "rubricem.judge.ask.gate": False,
            "rubricem.judge.ask.second_reader": False,
        },
    ),
    Row(
        "C.3 Stagewise Scoring",
        "A quality without a quote",
        "nothing is said",
        {"rubricem.judge.ask.requires_quote": False},
    ),
    Row(
        REFLECTIONS,
        "Accepted",
        "highest-scored candidate with valid output format",
        {
            "rubricem.reflection.gate_counts": False,
            "rubricem.reflection.form_counts": False,
            "rubricem.bank.gate.reads_text": False,
            "rubricem.bank.gate.page_words": None,
            "rubricem.bank.gate.min_score": 0.0,
            "rubricem.bank.gate.rubrics_chars": 1_000_000,
            "rubricem.bank.gate.takeaways_chars": 1_000_000,
            "rubricem.bank.gate.question_chars": 1_000_000,
            "rubricem.bank.probation": None,
            "rubricem.bank.is_moderated": False,
        },
    ),
    Row("Algorithm 1, lines 27-28", "Reflections", "at every step", {"rubricem.reflect_phase": "all"}),
    Row(
        "D.5 Bank Persistence and Retrieval",
        "Cross-episode retrieval",
        "top-k, no ceiling",
        {
            "rubricem.bank.retrieval.near_duplicate": 1.01,
            "rubricem.bank.retrieval.least_similarity": -1.0,
            "rubricem.bank.retrieval.max_age": None,
            "rubricem.references.share": 1.0,
            "rubricem.references.last_share": None,
            "rubricem.references.distill_context": False,
            "rubricem.on_miss": "none",
        },
    ),
    Row(
        "Equation 1",
        "Importance weight",
        "none beside the ratio",
        {
            "algorithm.rollout_correction.rollout_is": None,
        },
    ),
)
"""What the paper-exact files have beside it, where our own files depart."""

SFT_ROWS = (
    Row(SFT, "Base model", "Qwen3-8B", {"model": "Qwen/Qwen3-8B"}),
    Row(SFT, "Training epochs", "5", {"epochs": 5}),
    Row(SFT, "Learning rate", "4e-5", {"learning_rate": 4e-5}),
    # The cosine is the schedule's only shape.
    Row(SFT, "LR scheduler", "Cosine with 10% warmup", {"warmup_share": 0.1}),
    Row(SFT, "Effective batch size", "128 (8 GPUs x 16 accum.)", {"batch_size": 128}),
    Row(SFT, "Max sequence length", "16,384 tokens", {"max_tokens": 16_384}),
    Row(SFT, "Precision", "BF16", {"precision": "bf16"}),
    Row(SFT, "Weight decay", "0.0", {"weight_decay": 0.0}),
)
"""What the fine-tuning has; `configs/accelerate_zero3.yaml` has its GPUs and ZeRO-3."""


class Recipe(NamedTuple):
    """What a file of the ablation (figure 5) has of its own."""

    credit: str
    meta_policy: bool
    repeats: bool = True
    """The table lists the windowed curriculum under the rubric bank, "full RubricEM only"; our own files repeat always.
    """


ABLATIONS = {
    "verl_ssgrpo_8b": Recipe("stages", False),
    "verl_answer_only_8b": Recipe("answer_only", False),
    "verl_meta_policy_8b": Recipe("answer_only", True),
}
"""Our own files of the ablation."""
PAPER_FILE = "verl_rubricem_8b_paper"
PAPER_ABLATIONS = {
    "verl_ssgrpo_8b_paper": Recipe("stages", False, repeats=False),
    "verl_answer_only_8b_paper": Recipe("answer_only", False, repeats=False),
    "verl_meta_policy_8b_paper": Recipe("answer_only", True),
}
"""The paper-exact files of the ablation."""
ABLATION_BUDGET = {"trainer.total_training_steps": 600, "trainer.nnodes": 2}
"""Of each run of the ablation (F.1.2)."""
FULL_BUDGET = {"trainer.total_training_steps": 1_400, "trainer.nnodes": 4}
RECIPES = ("verl_rubricem_8b", *ABLATIONS, PAPER_FILE, *PAPER_ABLATIONS)
"""All files of 8B with the paper's numbers and machines."""


def numbers_of(name: str) -> dict[str, object]:
    """What the paper says of the recipe in a file, by key."""
    own = {**ABLATIONS, **PAPER_ABLATIONS}.get(name, Recipe("stages", True))
    rows = (*RL_ROWS, *EXACT_ROWS) if name.endswith("_paper") else RL_ROWS
    is_whole = name in ("verl_rubricem_8b", PAPER_FILE)
    return {
        **{key: value for row in rows for key, value in row.keys.items()},
        **(FULL_BUDGET if is_whole else ABLATION_BUDGET),
        "trainer.n_gpus_per_node": 8,
        "rubricem.credit": own.credit,
        "rubricem.meta_policy": own.meta_policy,
        "rubricem.repeats": own.repeats,
    }


def values_of(name: str) -> dict[str, Any]:
    """The values of a shipped file composed, with the defaults of our section."""
    return with_defaults(read_run_file(CONFIGS / f"{name}.yaml"))


def with_defaults(composed: Mapping[str, Any]) -> dict[str, Any]:
    """A composed config with the defaults of our section."""
    return {**composed, SECTION: read_section(composed[SECTION]).model_dump(mode="json")}
