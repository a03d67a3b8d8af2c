"""Evaluates synthetic SimpleQA items with `rubricem eval` and with Inspect, against the same servers on this machine.

    pip install --target DIR --no-deps openai distro jiter tqdm sniffio      # Inspect's client; the lane has none
    PYTHONPATH=.:DIR .venv-inspect/bin/python -m tests.bench.eval_beside_inspect [--items 4326] [--at-once 16]

Both have the same interpreter, system message, question, answer and judge prompt: two requests an item, one to the
policy and one to the judge, to a server in a process of its own that replies at once. Each evaluation is a process of
its own. Its start is subtracted: what the same evaluation of one item takes.
"""

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from rubricem_agent.prompting import agent_prompt
from rubricem_env.env import shipped_toolbox

JUDGE_PROMPT = "rubricem_agent/prompts/judge_simpleqa.md"
ANSWER = "<answer>The city of number {number}, as the almanac of that year says.</answer>"
SERVER = """
import sys, time
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelServer

def answer(asked):
    return "A" if asked.model == "judge" else {answer!r}

app = ModelServer(answer)
with serve_loopback(app) as url:
    print(url, flush=True)
    for line in sys.stdin:
        print(len(app.asked), sum(bool(each.body.get("stream")) for each in app.asked), flush=True)
        app.asked.clear()
"""


def write_items(path, count):
    """Rows in the form of the benchmark's file."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("metadata", "problem", "answer"))
        for number in range(count):
            rows.writerow(("{}", f"Which city had {number} lamps in the year of the second census?", f"City {number}"))


def inspect_child(data, url, at_once, folder):
    """Inspect's evaluation: its chat client, its model grader with our judge's prompt."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample, csv_dataset
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.scorer import model_graded_fact
    from inspect_ai.solver import generate, system_message

    told = Path(JUDGE_PROMPT).read_text().partition("-->\n")[2]
    for ours, theirs in (("question", "question"), ("gold", "criterion"), ("answer", "answer")):
        told = told.replace("{{" + ours + "}}", "{" + theirs + "}")
    config = GenerateConfig(max_connections=at_once)
    asked = {
        name: get_model(f"openai/{name}", base_url=f"{url}/v1", api_key="none", config=config, responses_api=False)
        for name in ("policy", "judge")
    }
    rules = agent_prompt(shipped_toolbox().names)
    task = Task(
        dataset=csv_dataset(data, lambda row: Sample(input=row["problem"], target=row["answer"])),
        solver=[system_message(rules.system.replace("{", "{{").replace("}", "}}")), generate()],
        scorer=model_graded_fact(template=told, grade_pattern="([ABC])", model=asked["judge"]),
    )
    eval(task, model=asked["policy"], display="none", log_dir=folder, max_samples=2 * at_once)


def ours(data, url, at_once, folder):
    at = ["--concurrency", str(at_once), "--judge-concurrency", str(at_once), "--no-probe", "--any-version"]
    models = ["--policy", f"openai:policy@{url}/v1", "--judge", f"openai:judge@{url}/v1"]
    command = ["-m", "rubricem_agent.cli.main", "eval", "simpleqa", "--data", data, "--out", f"{folder}/run"]
    return [sys.executable, *command, *models, *at]


def theirs(data, url, at_once, folder):
    return [sys.executable, "-m", "tests.bench.eval_beside_inspect", "--child", data, url, str(at_once), folder]


def spend(command):
    """Processor seconds and wall of one process; its output where it fails."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    # Loopback needs no key; both clients want some text.
    done = subprocess.run(command, env={**os.environ, "OPENAI_API_KEY": "none"}, capture_output=True, text=True)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main(items, at_once):
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER.format(answer=ANSWER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    url = server.stdout.readline().strip()
    sys.stdout.write(f"inspect-ai {version('inspect_ai')}, openai {version('openai')}, {items} items\n")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, command in (("rubricem eval", ours), ("inspect eval", theirs)):
                spent = []
                for count in (1, items):
                    place = Path(folder) / f"{name.split()[0]}-{count}"
                    place.mkdir()
                    write_items(place / "items.csv", count)
                    spent.append(spend(command(str(place / "items.csv"), url, at_once, str(place))))
                    print("asked", file=server.stdin, flush=True)
                    asked, streamed = map(int, server.stdout.readline().split())
                (start, start_wall), (whole, wall) = spent
                each, each_wall = (whole - start) / asked * 1e3, (wall - start_wall) / asked * 1e3
                sys.stdout.write(
                    f"{name}: {asked} requests ({streamed} streamed), {whole:.1f} s of processor time, "
                    f"{wall:.1f} s wall; start {start:.1f} s, {start_wall:.1f} s; "
                    f"a request {each:.2f} ms, {each_wall:.2f} ms wall\n"
                )
                sys.stdout.flush()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.eval_beside_inspect", description=__doc__)
    parser.add_argument("--items", type=int, default=4326)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        data, url, at_once, folder = chosen.child
        inspect_child(data, url, int(at_once), folder)
    else:
        main(chosen.items, chosen.at_once)
