"""Reflections for the tiny policy's school: an attempt as the prompt, the scripted lesson as what is learnt."""

from rubricem_agent.data.chatml import ChatSample, Message
from rubricem_agent.data.generation import Trace
from rubricem_agent.data.normalize import normalize
from rubricem_agent.prompting.library import fill
from rubricem_agent.reflection.format import RUBRICS, TAKEAWAYS
from rubricem_agent.reflection.generate import reflection_prompt
from rubricem_agent.reflection.transcript import render_transcript
from rubricem_env.scaffold.neutralize import neutralize
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.world.lesson import Lesson


def reflection_sample(trace: Trace, lesson: Lesson, *, system: str) -> ChatSample:
    """The reflection on a trace, laid out as the reflector lays it out."""
    reading = read_trajectory(normalize(trace.trajectory))
    text = f"<{RUBRICS}>\n{lesson.rubrics}\n</{RUBRICS}>\n<{TAKEAWAYS}>\n{lesson.takeaways}\n</{TAKEAWAYS}>"
    prompt = reflection_prompt(system)
    parts = {
        "question": neutralize(trace.task.query.question.strip()),
        "trajectory": render_transcript(reading, lambda shown: True),
    }
    user = fill(prompt.section("user"), parts)
    return ChatSample(
        id=f"{trace.task.id}/reflection",
        messages=(
            Message(role="system", content=prompt.section("system")),
            Message(role="user", content=user),
            Message(role="assistant", content=text),
        ),
        spans=((0, len(text)),),
        query_key=trace.trajectory.query_key,
        answer_format=trace.trajectory.answer_format,
        teacher="scripted",
        prompt_hash=prompt.hash,
    )
