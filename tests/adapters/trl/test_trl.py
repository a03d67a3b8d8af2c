"""TRL's own GRPOTrainer with a tiny random Qwen3: real optimiser steps on attempts in tokens."""

import pytest

pytest.importorskip("trl", reason="TRL is not installed; run make adapter-trl")

from contextlib import contextmanager
from functools import wraps
from types import SimpleNamespace

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

from docs.adapters.recipes.async_grpo import worker
from docs.adapters.tutor import Tutor, tutored_query, tutored_questions
from docs.adapters.tutored_policy import play_tutored
from rubricem_agent.adapters.credit import stage_advantages
from rubricem_agent.adapters.local_play import play_locally
from rubricem_agent.adapters.trl import StageGRPOTrainer, TrlSpec, research_spec
from rubricem_agent.prompting import AgentPrompt, agent_prompt
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.trajectory import Ending
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.world.offline import shipped_toolbox
from tests.adapters import snippets
from tests.adapters.golden_group import GOLDEN, SIZE, assert_golden_judgements, group_scorer
from tests.letter_writer import learn_letter
from tests.letters import BRIEF
from tests.scaffolds import WRITING

pytestmark = pytest.mark.filterwarnings("default")
QUERY = tutored_query()


@pytest.fixture(scope="module")
def tokenizer():
    tutor = Tutor(tutored_questions()[QUERY.question], 0)
    return tiny_tokenizer([tutor(QUERY.question)] * 3, vocab_size=600)


@pytest.fixture
def make_trainer(tokenizer, tmp_path):
    specs = []

    def make(kind=StageGRPOTrainer, *, play=None, advantages=stage_advantages, batch=SIZE, **settings):
        spec = TrlSpec(play=play or play_tutored(), scorer=group_scorer(), advantages=advantages, queries=[QUERY])
        specs.append(spec)
        config = GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=batch,
            num_generations=SIZE,
            learning_rate=1e-3,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            **{"max_steps": 1, **settings},
        )
        model = tiny_qwen3(len(tokenizer))
        return kind(model, args=config, processing_class=tokenizer, **spec.trainer_arguments)

    yield make
    for spec in specs:
        spec.close()


def rows_of(trainer):
    return [{"prompt": [{"role": "user", "content": QUERY.question}]} for _ in range(SIZE)]


def test_two_steps_with_stage_advantages_move_the_weights(make_trainer):
    trainer = make_trainer(max_steps=2)
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    moved = max(float((a - b.detach()).abs().max()) for a, b in zip(before, trainer.model.parameters(), strict=True))
    assert trainer.state.global_step == 2
    # Adam at 1e-3 and then 5e-4: a weight with a steady gradient moves by about 1.5e-3.
    assert 1e-4 < moved < 3e-3


def test_the_loss_gets_the_golden_advantage_of_each_tokens_stage(make_trainer):
    trainer = make_trainer()
    rows = rows_of(trainer)
    output = trainer._generate_and_score_completions(rows)
    assert_golden_judgements([row["judgement"] for row in rows])
    assert output["advantages"].shape == output["completion_ids"].shape
    spec_rows = trainer.rollout_func([row["prompt"] for row in rows], trainer)
    for row in range(SIZE):
        held = output["advantages"][row][output["tool_mask"][row] * output["completion_mask"][row] == 1]
        expected = {round(value, 4) for value in GOLDEN["advantages"][row]}
        assert {round(value, 4) for value in held.tolist()} <= expected
        assert len(spec_rows["completion_ids"][row]) == int(output["completion_mask"][row].sum())
    # What tools wrote earns nothing.
    assert not output["advantages"][output["tool_mask"] == 0].any()


def test_each_token_has_the_advantage_of_the_stage_that_its_text_is_in(make_trainer, tokenizer):
    trainer = make_trainer()
    output = trainer._generate_and_score_completions(rows_of(trainer))
    ids, advantages = output["completion_ids"][1].tolist(), output["advantages"][1].tolist()
    text = ""
    first = {}
    for token, advantage in zip(ids, advantages, strict=True):
        if "<answer>" in text:
            first.setdefault("answer", advantage)
        text += tokenizer.decode([token])
    assert advantages[0] == pytest.approx(GOLDEN["advantages"][1][0], abs=1e-4)
    assert first["answer"] == pytest.approx(GOLDEN["advantages"][1][3], abs=1e-4)


def test_a_plain_trainer_sees_four_rewards_and_one_advantage(make_trainer):
    trainer = make_trainer(GRPOTrainer, advantages=None, multi_objective_aggregation="normalize_then_sum")
    rows = rows_of(trainer)
    output = trainer._generate_and_score_completions(rows)
    assert output["advantages"].shape == (SIZE,)
    logged = {name: list(values) for name, values in trainer._logs["rewards"].items()}
    assert logged == {
        f"{stage!s}_score": pytest.approx([row[stage.position] for row in GOLDEN["scores"]]) for stage in STAGES
    }


def test_the_three_lines_of_the_docs_train(tmp_path):
    lines = snippets.snippet("TRL")
    assert len(snippets.statements(lines)) <= 3
    config = GRPOConfig(
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=SIZE,
        num_generations=SIZE,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        logging_steps=1,
    )
    # The agent's rules are long: a tokenizer that knows them leaves the model room to write.
    system = agent_prompt(shipped_toolbox().names).system
    tokenizer = tiny_tokenizer([system] * 2, vocab_size=1_500)
    model = tiny_qwen3(len(tokenizer), max_length=len(tokenizer.encode(system)) + 300)
    names = snippets.run(lines, model=model, tokenizer=tokenizer, config=config)
    (step, _) = names["trainer"].state.log_history
    assert step["completions/mean_length"] > 100
    names["spec"].close()


LLAMA = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 600}


@contextmanager
def family_trainer(kind, tokenizer, tmp_path, **shape):
    """A trainer of another family than Qwen3, by `research_spec`."""
    torch.manual_seed(0)
    model = kind(kind.config_class(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, **shape))
    spec = research_spec(queries=[QUERY], prompt=AgentPrompt("Plan, then search.", ""), max_turn_tokens=16)
    settings = {"max_steps": 1, "per_device_train_batch_size": SIZE, "num_generations": SIZE, "save_strategy": "no"}
    config = GRPOConfig(output_dir=str(tmp_path), report_to=[], use_cpu=True, logging_steps=1, **settings)
    try:
        yield StageGRPOTrainer(model, args=config, processing_class=tokenizer, **spec.trainer_arguments)
    finally:
        spec.close()


def test_a_llama_plays_and_trains_in_the_half_precision_that_trl_takes_by_itself(tokenizer, tmp_path):
    with family_trainer(LlamaForCausalLM, tokenizer, tmp_path, **LLAMA) as trainer:
        assert trainer.args.bf16
        trainer.train()
        (step, _) = trainer.state.log_history
        assert (trainer.state.global_step, step["completions/min_length"] > 0) == (1, True)
        # Accelerate's forward pass, which rounds, is put aside while the model plays, and is there again.
        assert "forward" in vars(trainer.model)


class MoodyLlama(LlamaForCausalLM):
    """Has other log-probabilities with its cache than without it."""

    @wraps(LlamaForCausalLM.forward)
    def forward(self, *given, use_cache=None, **named):
        output = super().forward(*given, use_cache=use_cache, **named)
        output.logits = -output.logits if use_cache else output.logits
        return output


def test_a_model_that_cannot_be_played_is_refused_when_the_trainer_is_made(tokenizer, tmp_path):
    with pytest.raises(ConfigError, match="MoodyLlama has other log-probabilities with its cache than without it"):
        family_trainer(MoodyLlama, tokenizer, tmp_path, **LLAMA).__enter__()


class RetokenisingTrainer(StageGRPOTrainer):
    def _generate(self, prompts):
        found = list(super()._generate(prompts))
        found[1] = [self.processing_class.encode(self.processing_class.decode(ids) + " ") for ids in found[1]]
        found[2] = [[1] * len(ids) for ids in found[1]]
        found[4] = None
        return tuple(found)


def test_a_trainer_that_tokenises_again_is_found_out(make_trainer):
    trainer = make_trainer(RetokenisingTrainer)
    with pytest.raises(UsageError, match="RetokenisingTrainer holds other tokens than the policy wrote: row 0"):
        trainer._generate_and_score_completions(rows_of(trainer))


def test_a_group_that_a_batch_cuts_short_is_said(make_trainer):
    trainer = make_trainer()
    with pytest.warns(UserWarning, match="the first has 3 attempts instead of 4"):
        trainer.rollout_func([row["prompt"] for row in rows_of(trainer)][:3], trainer)


def test_masking_of_truncated_completions_is_refused_since_it_would_mask_every_episode(make_trainer):
    trainer = make_trainer(mask_truncated_completions=True)
    with pytest.raises(ConfigError, match="set it to False"):
        trainer.rollout_func([rows_of(trainer)[0]["prompt"]], trainer)


def test_a_prompt_that_is_no_question_of_the_spec_is_refused(make_trainer):
    trainer = make_trainer()
    with pytest.raises(UsageError, match="is not a question of this spec"):
        trainer.rollout_func([[{"role": "user", "content": "Who?"}]], trainer)


def test_the_stage_trainer_says_when_the_spec_has_no_advantages(make_trainer):
    trainer = make_trainer(advantages=None)
    with pytest.raises(UsageError, match="pass advantages="):
        trainer._generate_and_score_completions(rows_of(trainer))


def test_a_policy_that_never_ends_is_ended_by_the_limits_and_its_step_is_harmless(make_trainer):
    seen = []
    play = play_locally(
        AgentPrompt("Search.", ""), shipped_toolbox(), limits=EpisodeLimits(max_tokens=60), max_turn_tokens=40
    )

    async def watched(queries, trainer):
        rollouts = await play(queries, trainer)
        seen.extend(rollouts)
        return rollouts

    trainer = make_trainer(play=watched)
    trainer.train()
    assert {rollout.trajectory.ending for rollout in seen} <= {Ending.STALLED, Ending.TOKEN_BUDGET}
    assert all(torch.isfinite(weight).all() for weight in trainer.model.parameters())
    assert all(np.isfinite(rollout.tokens.logprobs).all() for rollout in seen)


def test_the_recipe_for_async_grpo_fills_the_buffer_with_a_row_for_each_stage(tokenizer):
    play = play_tutored()
    trainer = SimpleNamespace(processing_class=tokenizer)
    one = worker(lambda query: play([query] * SIZE, trainer), group_scorer(), [QUERY])
    one.start()
    samples = [one.rollout_buffer.get(timeout=60) for _ in range(SIZE * len(STAGES))]
    one.stop()
    one.check_health(60.0)
    assert [sample.advantage for sample in samples] == pytest.approx(np.array(GOLDEN["advantages"]).ravel(), abs=1e-4)
    assert {sample.group_id for sample in samples} == {0}
    for attempt in range(SIZE):
        masks = [sample.completion_mask for sample in samples[4 * attempt : 4 * attempt + 4]]
        # Every token that the policy wrote is in one stage's row.
        assert set(np.sum(masks, axis=0)) == {0, 1}
        assert all(mask.shape == samples[4 * attempt].input_ids.shape for mask in masks)


def test_the_whole_program_of_the_page_runs_alone_in_an_empty_folder(tmp_path):
    snippets.run_program("TRL", tmp_path)


def test_letters_are_trained_on_in_the_stages_of_writing(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(learn_letter(tmp_path / "policy"))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "policy", attn_implementation="sdpa")
    spec = research_spec(
        queries=[BRIEF],
        toolbox=LocalToolbox(),
        scaffold="writing",
        prompt=agent_prompt((), system="Write.", scaffold=WRITING.scaffold),
        max_turn_tokens=200,
    )
    settings = {"max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 4, "temperature": 1.3}
    config = GRPOConfig(
        output_dir=str(tmp_path), report_to=[], use_cpu=True, save_strategy="no", bf16=False, **settings
    )
    trainer = StageGRPOTrainer(model, args=config, processing_class=tokenizer, **spec.trainer_arguments)
    trainer.train()
    spec.close()

    assert [reward.__name__ for reward in spec.reward_funcs] == [f"{stage}_score" for stage in WRITING.scaffold.names]
    assert any("rewards/final_score/mean" in line for line in trainer.state.log_history)


def test_a_prompt_of_other_stages_is_refused():
    with pytest.raises(ConfigError, match="the prompt is of the stages of 'deep_research', and scaffold is 'writing'"):
        research_spec(queries=[BRIEF], scaffold="writing", prompt=AgentPrompt("Plan, then search.", ""))


def test_a_context_is_refused_since_trl_takes_one_completion_for_an_attempt():
    with pytest.raises(ConfigError, match=r"context.fold_at is 4000, and TRL takes one prompt and one completion"):
        research_spec(context=ContextLimits(fold_at=4_000, fold_to=2_000))
