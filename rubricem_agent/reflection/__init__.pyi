from rubricem_agent.reflection.candidates import (
    Candidate as Candidate,
    PolicyCandidates as PolicyCandidates,
    ReflectionSettings as ReflectionSettings,
)
from rubricem_agent.reflection.reflector import ReflectionSample as ReflectionSample, Reflector as Reflector
