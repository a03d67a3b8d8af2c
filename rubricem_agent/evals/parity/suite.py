"""The units of every benchmark, by the name that a recording gives the benchmark."""

from collections.abc import Mapping
from types import MappingProxyType

from rubricem_agent.evals.parity import (
    browsecomp_plus,
    deepsearchqa,
    draco,
    drb2,
    drb_fact,
    drb_race,
    drtulu_io,
    healthbench,
    researchqa,
    researchrubrics,
    simpleqa,
    twowiki,
    webwalkerqa,
)
from rubricem_agent.evals.parity.unit import Unit

UNITS: Mapping[str, Mapping[str, Unit]] = MappingProxyType(
    {
        "browsecomp_plus": browsecomp_plus.UNITS,
        "deepsearchqa": deepsearchqa.UNITS,
        "draco": draco.UNITS,
        "drb2": drb2.UNITS,
        "drb_fact": drb_fact.UNITS,
        "drb_race": drb_race.UNITS,
        "drtulu_io": drtulu_io.UNITS,
        "healthbench": healthbench.UNITS,
        "researchqa": researchqa.UNITS,
        "researchrubrics": researchrubrics.UNITS,
        "simpleqa": simpleqa.UNITS,
        "twowiki": twowiki.UNITS,
        "webwalkerqa": webwalkerqa.UNITS,
    }
)
