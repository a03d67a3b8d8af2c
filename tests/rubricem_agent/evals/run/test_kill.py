"""A real kill -9 in the middle of a run."""

import asyncio
import os
import signal
import subprocess
import sys

from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelServer

RUN = """
import asyncio, sys
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_agent.wiring.eval_config import EvalConfig
asyncio.run(run_evaluation(plan_run(EvalConfig.model_validate_json(sys.argv[1], strict=False))))
"""


def test_a_run_killed_at_its_twentieth_question_loses_only_what_was_under_way(make_config, judge_app):
    asked = []
    victim: list[subprocess.Popen[bytes]] = []
    verdict = '{"criteria_met": true}'

    def answer(request):
        asked.append(request)
        if len(asked) == 20:
            os.kill(victim[0].pid, signal.SIGKILL)
        return verdict

    with serve_loopback(ModelServer(answer)) as url:
        config = make_config("healthbench", judges=(f"openai:judge@{url}/v1",), judge_concurrency=4)
        victim.append(subprocess.Popen([sys.executable, "-c", RUN, config.model_dump_json()]))
        assert victim[0].wait() == -signal.SIGKILL
        logged = (config.folder / "verdicts.jsonl").read_bytes().count(b"\n")
        before = len(asked)

        scores = asyncio.run(run_evaluation(plan_run(config))).scores

    # 36 items in all; at most the four calls under way are made twice.
    assert 16 <= logged < 36
    # A call that was under way may reach the server after the process is gone.
    assert 36 - logged <= len(asked) - before < 36 - logged + 4
    # Everything is met, the item of -6 points too: 6/12, 9/15, 14/20 and 21/27, each twice.
    assert scores.headline.score == (6 / 12 + 9 / 15 + 14 / 20 + 21 / 27) / 4
    assert scores.is_complete
