"""RubricEM in one file: stage-structured GRPO (SS-GRPO) with a reflection meta-policy, the paper's Algorithm 1.

    python examples/ssgrpo.py                        # about a minute on two cores, no key, no network
    python examples/ssgrpo.py --steps 12 --seed 1

It trains the tiny policy that comes with the package (a million parameters) in the almanac, an invented world whose
questions carry their truth. It needs the extra `local`. The trainers for real runs are in `trainers/`; this file uses
none of them. What it leaves out, compared with `trainers/local/ssgrpo.py`:

1. No clipping of the probability ratio. A batch gets one optimiser step, so the ratio is exactly 1 where the gradient
   is taken, and a clip would never bind. Reflections were drawn one update earlier; nothing corrects for that.
2. No packing, no padding, no LoRA: one sequence is one forward pass, and the gradients add up.
3. The sum over tokens is divided by their number. The paper's equation 1 divides it by the number of rollouts.
4. No concurrency. A cluster writes reflections while it trains. One process has one model, so the loop waits for them;
   they are still trained on one step late, as in the paper.
5. No checkpoints, no log files, no retries. A call of the judge that fails masks its rollout; any other failure ends
   the run.

One thing differs from the paper: the bank's lessons go to half of the attempts of a group. With `--guided 1` all
attempts see them, as in the paper. Held-out questions are answered without lessons, and their answers then rise by
less.

Letters in the comments: G attempts of a group, K = 4 stages, T tokens of a sequence, W of them written by the policy.
"""

import argparse
import asyncio
import copy
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rubricem_agent.learn import PAPER_MATRIX, Curriculum, assign_credit, group_scores, spread_to_tokens
from rubricem_agent.memory import HashingEmbedder, Injector, RubricBank
from rubricem_agent.policy import (
    TINY,
    TINY_SYSTEM,
    AgentPrompt,
    LocalPolicy,
    Opening,
    Sampling,
    agent_prompt,
    load_model,
    load_tokenizer,
)
from rubricem_agent.reflection import ReflectionOutcome, ReflectionSettings, Reflector, judged_attempts
from rubricem_agent.rollout import Rollout, RolloutContext, run_groups
from rubricem_env.domain import Query
from rubricem_env.env import EpisodeLimits, query_of, shipped_toolbox
from rubricem_env.judge import Group, GroupJudgement, RubricBuffer, StepJudge
from rubricem_env.world import AlmanacJudge, Question, load_questions, shipped_questions_path, true_quality

# ----------------------------------------------------------------------------------------------------------------------
# Settings


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="SS-GRPO with a reflection meta-policy, in one file.")
    parser.add_argument("--steps", type=int, default=6, help="training steps; six are one window of the curriculum")
    parser.add_argument("--questions", type=int, default=4, help="questions of a step")
    parser.add_argument("--group-size", type=int, default=6, help="attempts at each question")
    parser.add_argument("--candidates", type=int, default=4, help="reflections written about each question")
    parser.add_argument("--guided", type=float, default=0.5, help="share of a group's attempts that see lessons")
    parser.add_argument("--lr", type=float, default=8e-4, help="learning rate")
    parser.add_argument("--kl", type=float, default=0.001, help="coefficient of the KL to the policy before training")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


CONTEXT_TOKENS = 2_400
"""The longest sequence: a rollout, or a reflection with the attempt that it is about."""
LIMITS = EpisodeLimits(max_tokens=1_400)
"""An episode ends after as many tokens, or after the paper's 10 searches."""


# ----------------------------------------------------------------------------------------------------------------------
# Rollouts: groups of attempts at the same question


async def sample_groups(
    context: RolloutContext,
    prompt: AgentPrompt,
    queries: Sequence[Query],
    *,
    group_size: int,
    seed: int,
    lessons: dict[str, str] | None = None,
    guided: float = 0.0,
) -> list[list[Rollout]]:
    """The rollouts of each question. The first `guided` share of a group sees the question's lessons in the prompt."""

    async def open_query(query: Query, attempt: int) -> tuple[Opening, str]:
        references = lessons[query.key] if lessons and attempt < guided * group_size else ""
        return prompt.opening(query, references=references), prompt.hash

    return await run_groups(queries, open_query, context, group_size=group_size, seed=seed)


def retrieve_lessons(
    bank: RubricBank, injector: Injector, queries: Sequence[Query], retrieval: Literal["cross", "within"]
) -> dict[str, str]:
    """By question: the block of lessons that stands before it in the prompt; empty where the bank has none."""
    retrieved = {query.key: bank.retrieve(query.question, retrieval) for query in queries}
    return {key: injector.render(items, retrieval)[0] for key, items in retrieved.items()}


async def evaluate(context: RolloutContext, prompt: AgentPrompt, questions: Sequence[Question], seed: int) -> float:
    """The true quality of the answers, from 0 to 1: one greedy attempt at each question, without lessons."""
    greedy = context._replace(sampling=Sampling(temperature=0.0, max_turn_tokens=512))
    queries = [query_of(question) for question in questions]
    groups = await sample_groups(greedy, prompt, queries, group_size=1, seed=seed)
    qualities = [true_quality(question, group[0].parsed) for question, group in zip(questions, groups, strict=True)]
    return float(np.mean(qualities, axis=0)[-1])  # of the four stages, the answer


# ----------------------------------------------------------------------------------------------------------------------
# Credit: from the scores of a group to an advantage for every token


class Sample(NamedTuple):
    """One sequence to train on: a rollout, or a reflection."""

    tokens: Tensor  # (T,) ids: the prompt, what the policy wrote, what the tools answered
    is_policy: Tensor  # (T,) bool: what the policy wrote, the only tokens that are trained on
    advantages: Tensor  # (T,) float: 0 where the policy did not write
    temperature: float  # of the sampling


def task_samples(rollouts: Sequence[Rollout], judged: GroupJudgement) -> Iterator[Sample]:
    """The rollouts of one question with their stage advantages (paper, section 3.3)."""
    # A stage that the rollout never reached scores 0. A stage that the judge failed to score is no 0: `scored` is False
    # and the group's mean stands in. `valid` is False where the judge or the policy's server lost the whole rollout.
    scores, valid, scored = group_scores(judged.judgements)  # (G, K), (G,), (G, K)
    valid &= np.array([rollout.is_valid for rollout in rollouts])
    # A stage earns its own score and a share of the scores of the stages that it enables, and is compared with the same
    # stage of the other attempts:
    #     returns[i, k] = sum over j of matrix[k, j] * scores[i, j]
    #     advantages[i, k] = (returns[i, k] - mean over i) / (std over i + 1e-8)
    credit = assign_credit(scores, matrix=PAPER_MATRIX, valid=valid, scored=scored)
    for rollout, advantages, teaches in zip(rollouts, credit.advantages, credit.trainable, strict=True):
        if not teaches:
            continue  # masked, or of a group whose attempts are all worth the same
        assert rollout.tokens is not None, "LocalPolicy records the tokens of every rollout"
        stage_ids = np.array([rollout.tokens.stage_ids])  # (1, T): 0 to 3, and -1 where the policy did not write
        spread = spread_to_tokens(advantages[None], stage_ids)  # (1, T): a token has the advantage of its stage
        yield Sample(
            tokens=torch.tensor(rollout.tokens.ids),
            is_policy=torch.from_numpy(stage_ids[0] >= 0),
            advantages=torch.from_numpy(spread[0]),
            temperature=rollout.temperature,
        )


def reflection_samples(outcome: ReflectionOutcome) -> Iterator[Sample]:
    """The reflections on one question: plain GRPO, as a reflection is one stage and its return is its utility."""
    utilities = [[candidate.score.utility] for candidate in outcome.scored if candidate.score is not None]  # (G, 1)
    if not utilities:
        return  # the judge failed on all candidates
    credit = assign_credit(utilities, matrix=[[1.0]])
    for candidate, advantage, teaches in zip(outcome.scored, credit.advantages[:, 0], credit.trainable, strict=True):
        if teaches:
            # The pieces are the prompt, in which the attempt is quoted, and the reflection.
            is_policy = torch.tensor([piece.is_policy for piece in candidate.pieces for _ in piece.ids])
            yield Sample(
                tokens=torch.tensor([token for piece in candidate.pieces for token in piece.ids]),
                is_policy=is_policy,
                advantages=is_policy * float(advantage),
                temperature=outcome.temperature,
            )


# ----------------------------------------------------------------------------------------------------------------------
# Loss: the same for both phases


def policy_logprobs(model: PreTrainedModel, sample: Sample) -> Tensor:
    """(W,): the log-probability of every token that the policy wrote, at the temperature of its sampling."""
    tokens = sample.tokens.to(model.device)
    logits = model(input_ids=tokens[None, :-1]).logits[0]  # (T - 1, vocabulary): position t predicts token t + 1
    logprobs = (logits.float() / sample.temperature).log_softmax(dim=-1)
    of_next: Tensor = logprobs.gather(dim=-1, index=tokens[1:, None])[:, 0]  # (T - 1,)
    return of_next[sample.is_policy[1:].to(model.device)]


def update_policy(
    model: PreTrainedModel,
    reference: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    kl_coefficient: float,
) -> None:
    """One optimiser step on all samples, if there are any."""
    if not samples:
        return
    num_tokens = sum(int(sample.is_policy.sum()) for sample in samples)
    optimizer.zero_grad()
    for sample in samples:
        new = policy_logprobs(model, sample)  # (W,)
        with torch.no_grad():
            ref = policy_logprobs(reference, sample)  # (W,)
        advantages = sample.advantages[sample.is_policy].to(new.device)  # (W,)
        # Its value is 1, and its gradient is that of the log-probability. A clip would stand here.
        ratio = (new - new.detach()).exp()
        # Schulman's third estimator of the KL: it is never negative.
        kl = (ref - new).exp() - (ref - new) - 1
        loss = (kl_coefficient * kl - ratio * advantages).sum() / num_tokens
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()


# ----------------------------------------------------------------------------------------------------------------------
# Training: Algorithm 1


def describe_quality(groups: Sequence[Group], truth: dict[str, Question]) -> str:
    """The mean true quality of a step's attempts by stage. It is for people: nothing that trains reads the truth."""
    true = np.mean([true_quality(truth[group.key], parsed) for group in groups for parsed in group.trajectories], 0)
    plan, research, review, answer = true
    return f"true quality of plan {plan:.2f}, research {research:.2f}, review {review:.2f}, answer {answer:.2f}"


async def train(args: argparse.Namespace) -> tuple[float, float]:
    """Train; returns the quality of held-out answers before and after."""
    # The world: questions with their truth, search tools, and a judge that knows the true criteria of each question.
    questions = load_questions(shipped_questions_path())
    truth = {query_of(question).key: question for question in questions}
    train_queries = {key: query_of(question) for key, question in truth.items() if question.split == "train"}
    held_out = [question for question in questions if question.split == "validation"]
    toolbox = shipped_toolbox()
    judge = AlmanacJudge(questions, seed=args.seed)

    # The policy, which also writes the reflections, and the frozen reference of the KL. The last two arguments make
    # sampling faster on a CPU; no number depends on them.
    model = load_model(Path(TINY))
    reference = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    policy = LocalPolicy(model, load_tokenizer(Path(TINY)), max_length=CONTEXT_TOKENS, threads=2, draft_tokens=3)
    prompt = agent_prompt(toolbox.names, system=TINY_SYSTEM)
    context = RolloutContext(policy, toolbox, LIMITS, Sampling(temperature=1.0, max_turn_tokens=512))

    # The two memories: the judge's rubrics by question and stage, and the agent's bank of lessons.
    step_judge = StepJudge(judge, RubricBuffer())
    bank = RubricBank.in_memory(HashingEmbedder())
    injector = Injector(count_tokens=policy.count_tokens, budget=512)
    settings = ReflectionSettings(
        num_candidates=args.candidates, total_tokens=CONTEXT_TOKENS, new_tokens=128, system="Reflect.", seed=args.seed
    )
    reflector = Reflector(policy, judge, bank, settings=settings)

    # Three steps of new questions, then the same questions again, and so on.
    rng = np.random.default_rng(args.seed)
    curriculum = Curriculum(list(train_queries), batch_size=args.questions, window=3, rng=rng)

    before = await evaluate(context, prompt, held_out, args.seed)
    print(f"before training: held-out answers {before:.3f}")
    reflected: list[ReflectionOutcome] = []
    for batch in islice(curriculum, args.steps):
        queries = [train_queries[key] for key in batch.keys]

        # Retrieve lessons: of similar questions where these are new, and the question's own where it is repeated.
        lessons = retrieve_lessons(bank, injector, queries, batch.retrieval)

        # Phase A: train the meta-policy on the reflections of the step before.
        samples = [sample for outcome in reflected for sample in reflection_samples(outcome)]
        update_policy(model, reference, optimizer, samples, args.kl)

        # Sample a group of rollouts for each question, with the weights as they are now.
        seed = 1_000_000 * args.seed + batch.step
        rollouts = await sample_groups(
            context, prompt, queries, group_size=args.group_size, seed=seed, lessons=lessons, guided=args.guided
        )

        # Judge. The judge contrasts the attempts of a group, adds rubrics that tell them apart, scores every stage by
        # the rubrics of the question, and drops rubrics on which all attempts have come to agree.
        groups = [
            Group.of(query, [rollout.parsed for rollout in attempts])
            for query, attempts in zip(queries, rollouts, strict=True)
        ]
        judgements = await step_judge.judge_step(groups, step=batch.step)

        # Reflect on one attempt at each new question, drawn evenly. The judge scores every candidate, and the best one
        # of valid form is written into the bank. All of them are trained on in the next step.
        reflected = []
        if batch.encounter == "new":
            experience = map(judged_attempts, groups, judgements)
            reflected = await asyncio.gather(*(reflector.reflect(group, step=batch.step) for group in experience))

        # Phase B: train the task policy on the rollouts.
        samples = [sample for judged in zip(rollouts, judgements, strict=True) for sample in task_samples(*judged)]
        update_policy(model, reference, optimizer, samples, args.kl)

        num_rubrics = sum(len(judgement.rubrics) for judgement in judgements)
        quality = describe_quality(groups, truth)
        print(f"step {batch.step} ({batch.encounter}): {quality}; {num_rubrics} rubrics, {len(bank)} lessons")
    after = await evaluate(context, prompt, held_out, args.seed)
    print(f"after training: held-out answers {after:.3f}")
    await policy.aclose()
    return before, after


if __name__ == "__main__":
    asyncio.run(train(read_arguments(None)))
