from rubricem_agent.reflection.candidates import (
    ReflectionSample as ReflectionSample,
    ReflectionSettings as ReflectionSettings,
)
from rubricem_agent.reflection.reflector import Reflector as Reflector
