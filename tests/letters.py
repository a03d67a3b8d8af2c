"""Letters in the stages of writing, and a brief for them."""

from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.trajectory import Query

LETTER = (
    "<think>t</think><outline><aims>decline the invitation</aims><order>o</order></outline><draft>I decline.</draft>"
    "<revision><faults>f</faults><changes>c</changes></revision><final>I decline the invitation.</final>"
)
POLITE = Rubric(stage="answer", title="Polite", description="Thanks for the invitation.", persistent=True)


def brief(occasion: str) -> Query:
    """A brief with a rubric of its data set."""
    return Query(question=f"Write a letter that declines the invitation to {occasion}.", rubrics=(POLITE,))


BRIEF = brief("tea")
