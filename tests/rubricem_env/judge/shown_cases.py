"""Attempts for the tests of what a judge is shown."""

from rubricem_env.judge.model.shown_attempt import render_stages
from rubricem_env.scaffold.parsed import parse_trajectory


def shown(trajectory, **limits):
    return render_stages(parse_trajectory(trajectory), **limits)


LESSON = (
    "What follows are criteria that were drawn from other questions; do not copy them.\n\n## Similar question 1\n"
    "How wide is Grey Heron?\n\n### Takeaways\n- Rivers of this almanac are measured at low water in late summer, and "
    "every width has to say so."
)
SECRET = "in late summer, and every width"
