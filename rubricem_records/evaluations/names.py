"""How reports name an evaluation, its agent and its judges."""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from rubricem_records.evaluations.manifest import judge_model
from rubricem_records.evaluations.scores import Scores


def name_judges(runs: Sequence[Scores]) -> list[Scores]:
    """The runs with their judges named by the model alone, or in full where two judges share the model."""
    judges = {judge.judge for run in runs for judge in run.judges}
    judges_of_model = Counter(judge_model(judge) for judge in judges)
    names = {judge: judge if judges_of_model[judge_model(judge)] > 1 else judge_model(judge) for judge in judges}
    return [
        run.model_copy(
            update={
                "judges": tuple(judge.model_copy(update={"judge": names[judge.judge]}) for judge in run.judges),
                "agreements": tuple(
                    pair.model_copy(update={"first": names[pair.first], "second": names[pair.second]})
                    for pair in run.agreements
                ),
            }
        )
        for run in runs
    ]


def title_of(run: Scores) -> str:
    return run.manifest.title


def name_of(run: Scores) -> str:
    """How a run is named in a report."""
    return f"{title_of(run)}, {agent_name(run)}"


def agent_name(run: Scores) -> str:
    """Policy, style and memory in short; a file of answers by its name."""
    agent = run.manifest.agent
    kind, colon, rest = agent.policy.partition(":")
    policy = f"{kind}:{PurePath(rest).name}" if kind in ("file", "local") and colon else agent.policy
    options = [agent.style, f"reuse {agent.reuse}" if agent.reuse != "none" else ""]
    options.append(f"{agent.attempts} attempts" if agent.attempts > 1 else "")
    options.append("own agent prompts" if agent.prompts_sha256 else "")
    return f"{policy} ({', '.join(filter(None, options))})"
