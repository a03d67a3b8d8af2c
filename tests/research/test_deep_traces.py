"""Traces of the deeper almanac's expert in windows, and the arms that are trained on them."""

import asyncio
from pathlib import Path

import pytest

from research.deep_curves import ARMS, summarise_arms
from research.deep_traces import DeepTraceConfig, make_deep_samples, play
from rubricem_agent.policy.base import TINY_SYSTEM
from rubricem_agent.prompting import AgentPrompt, prompt_from_text
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.view import windows_of
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.world.deep import deep_almanac
from trainers.local.settings import LocalConfig
from trainers.settings import read_settings

CONTEXT = ContextLimits(fold_at=1_600, fold_to=1_100, keep=1)
PROMPT = AgentPrompt(TINY_SYSTEM, prompt_from_text("tiny", TINY_SYSTEM).hash)


@pytest.fixture(scope="module")
def attempt():
    world = deep_almanac(3, entities_per_domain=15, questions_per_domain=15)
    toolbox = offline_toolbox(Corpus(world.documents))
    return asyncio.run(play(toolbox, world.questions_of("train")[0], CONTEXT, PROMPT))


def test_an_attempt_of_the_expert_has_several_windows(attempt):
    assert len(attempt.folds) >= 1
    assert len(list(windows_of(attempt))) == len(attempt.folds) + 1


def test_samples_have_a_window_each(tmp_path):
    config = DeepTraceConfig(out=tmp_path, worlds=1, entities=9, context=CONTEXT)
    samples = make_deep_samples(config)
    assert (tmp_path / "samples.jsonl").is_file()
    attempts = {sample.id.partition("#")[0] for sample in samples}
    assert len(samples) > 2 * len(attempts)


def test_the_arms_differ_in_how_much_they_may_read_and_call():
    read = {arm.name: read_settings(Path("configs/local_deep.yaml"), LocalConfig, changes=arm.changes) for arm in ARMS}
    assert (read["folded"].context.fold_at, read["folded"].limits.max_calls) == (1_600, 100)
    assert (read["unfolded"].context.fold_at, read["unfolded"].limits.max_calls) == (None, 100)
    assert read["unfolded"].limits.max_tokens > read["folded"].context.fold_at + read["folded"].max_turn_tokens
    assert (read["ten_calls"].context.fold_at, read["ten_calls"].limits.max_calls) == (1_600, 10)
    assert summarise_arms([], 1) == []
