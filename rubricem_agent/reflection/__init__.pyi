from rubricem_agent.reflection.candidates import (
    ReflectionSample as ReflectionSample,
    ReflectionSettings as ReflectionSettings,
)
from rubricem_agent.reflection.reflector import (
    JudgedAttempt as JudgedAttempt,
    ReflectionOutcome as ReflectionOutcome,
    Reflector as Reflector,
    judged_attempts as judged_attempts,
)
