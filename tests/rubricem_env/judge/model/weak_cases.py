"""Requests for which two small models' replies were recorded, and what the judge and the parser make of a reply."""

from typing import NamedTuple

from rubricem_env.domain.base import Frozen, Stage
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.domain.trajectory import Ending, Query, ToolCall
from rubricem_env.env.episode import Episode, Finished
from rubricem_env.judge.base import Contrast, ScoringRequest
from rubricem_env.judge.model.ask_settings import AskSettings
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.reflections import ReflectionTask
from rubricem_env.llm.chat import ChatModel, Finish
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import POOR_ANSWER, POOR_PLAN, QUESTION, attempt, careless
from tests.fakes import rubric

MAX_TOKENS = 640
PURPOSES = ("score", "propose", "reflect", "turn")
ATTEMPTS = tuple(
    parse_trajectory(each)
    for each in (attempt(), attempt(plan=POOR_PLAN), attempt(answer=POOR_ANSWER), careless(), attempt(review=""))
)
RUBRICS = (
    rubric("The answer states the width of each river with its unit."),
    rubric("The answer cites a snippet for each width."),
    rubric("The answer names no source that was not found.", negative=True),
    rubric("The plan names both rivers.", Stage.PLAN),
    rubric("The searches name the rivers.", Stage.RESEARCH),
)
QUERIES = tuple(
    Query(question=each)
    for each in (QUESTION, "Who wrote the novel Emma?", "Which metal melts at the lowest temperature, and why?")
)
LESSONS = ("State each width with its unit.", "Search each river by its own name, then compare.", "Good job.")


class Reply(Frozen):
    """What a model replied."""

    text: str
    finish: Finish


class RecordedReply(Frozen):
    """What a served model replied to a request and to the judge's further questions about it, and what became of it."""

    model: str
    server: str
    purpose: str
    number: int
    """Which request of that purpose: the attempt and how many rubrics follow from it."""
    replies: tuple[Reply, ...]
    outcome: str
    """How many scores, rubrics or lessons were taken, or why none was."""


class Outcome(NamedTuple):
    """What a reply became."""

    taken: int
    said: str


async def ask(model: ChatModel, purpose: str, number: int) -> Outcome:
    """Ask once, as the judge asks for this purpose."""
    once = RetryPolicy(attempts=1)
    judge = LLMJudge(
        model,
        settings=AskSettings(temperature=0.7, seed=number, max_output_tokens=256, retry=once, fallback_retry=once),
    )
    parsed = ATTEMPTS[number % len(ATTEMPTS)]
    rubrics = RUBRICS[: 1 + number % len(RUBRICS)]
    if purpose == "score":
        scored = await judge.score(ScoringRequest(QUESTION, parsed, rubrics, seed=number))
        scores = [f"{each.score:g}" for each in scored.rubric_scores.values()]
        return Outcome(len(scores), f"scores {' '.join(scores)}" if scores else scored.failure)
    if purpose == "propose":
        proposal = await judge.propose(Contrast(QUESTION, (parsed, ATTEMPTS[0]), seed=number))
        kept = "; ".join(each.title for each in proposal.rubrics)
        return Outcome(len(proposal.rubrics), f"rubrics {kept}" if kept else proposal.failure or "no rubrics")
    unscored = Judgement.of({})
    task = ReflectionTask(QUESTION, parsed, unscored, (), LESSONS[: 1 + number % 3], seed=number)
    outcomes = [each.outcome for each in await judge.judge_reflections(task)]
    given = [f"{each.utility:.2f}" for each in outcomes if isinstance(each, ReflectionScore)]
    reasons = [str(getattr(each, "detail", each)) for each in outcomes]
    return Outcome(len(given), f"scores {' '.join(given)}" if given else reasons[0])


def play(text: str, number: int) -> Outcome:
    """What the episode makes of a first turn."""
    episode = Episode(QUERIES[number % len(QUERIES)], seed=0)
    reply = episode.emit(text)
    if isinstance(reply, ToolCall):
        return Outcome(1, f"call {reply.name}")
    if isinstance(reply, Finished):
        return Outcome(int(reply.ending is Ending.ANSWERED), f"ended: {reply.ending.value}")
    return Outcome(0, "no action")
