from rubricem_env.scaffold.boundaries import find_boundaries as find_boundaries
from rubricem_env.scaffold.citations import resolve_citations as resolve_citations
from rubricem_env.scaffold.parsed import ParsedTrajectory as ParsedTrajectory, parse_trajectory as parse_trajectory
from rubricem_env.scaffold.parser import EmissionStream as EmissionStream, parse_turn as parse_turn
from rubricem_env.scaffold.turn import Turn as Turn
from rubricem_env.scaffold.untrusted import neutralize as neutralize, restore as restore
from rubricem_env.scaffold.violation import Violation as Violation
