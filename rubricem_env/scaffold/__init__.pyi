from rubricem_env.scaffold.grammar import Violation as Violation
from rubricem_env.scaffold.parsed import (
    ParsedTrajectory as ParsedTrajectory,
    find_boundaries as find_boundaries,
    parse_trajectory as parse_trajectory,
    resolve_citations as resolve_citations,
)
from rubricem_env.scaffold.parser import EmissionStream as EmissionStream, Turn as Turn, parse_turn as parse_turn
from rubricem_env.scaffold.untrusted import neutralize as neutralize, restore as restore
