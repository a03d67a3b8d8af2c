"""The words of the almanac as tables: names, domains, attributes with units, links and conventions.

The whole world uses a few hundred words, so that a very small model can learn to read and copy it.
"""

from typing import NamedTuple

from rubricem_env.domain.errors import UsageError


class Attribute(NamedTuple):
    """A number that each entity has: low, low + step, ... up to high, in the unit."""

    name: str
    unit: str
    low: int
    high: int
    step: int


class Domain(NamedTuple):
    """One subject of the almanac."""

    name: str
    singular: str
    attributes: tuple[Attribute, Attribute, Attribute]
    link: str
    """The relation of every entity to one entity of the domain `target`."""
    target: str
    aspect: str
    """By convention, a good answer states it for every entity; it has one of `aspect_values`."""
    aspect_values: tuple[str, ...]
    closing: str
    """By convention, these words end a long answer; they are the same for the whole domain."""


_TABLE = """
rivers river | length km 20 400 10 | depth m 2 40 1 | width m 45 300 5
mouth towns | season spring summer autumn winter | at low water

towns town | size homes 100 900 10 | area ha 10 95 1 | rise m 50 900 10
employer firms | census full sample register postal | by night

firms firm | revenue million 5 95 1 | staff people 20 900 10 | debt million 100 400 5
flagship ships | currency crown florin ducat mark | before tax

laws law | fine coins 10 500 10 | term days 5 90 1 | scope articles 3 60 1
subject drugs | court coastal inland island border | without appeal

drugs drug | dose mg 5 400 5 | onset minutes 5 90 1 | duration hours 2 48 1
source plants | route oral nasal skin vein | for adults

ships ship | beam m 4 40 1 | speed knots 6 45 1 | crew people 10 300 5
port towns | load empty half laden ballast | in calm sea

plants plant | height cm 10 300 5 | leaf mm 4 80 1 | bloom days 5 60 1
record journals | soil clay sand peat chalk | under glass

journals journal | print pages 20 400 10 | price coins 5 90 1 | reach readers 100 900 10
owner firms | review open blind editor panel | on paper
"""
"""A domain: name and singular, three attributes; link and its target, aspect and its values, closing words."""


def _read_domain(rows: str) -> Domain:
    (name, singular), *numbers, (link, target), (aspect, *values), closing = (
        cell.split() for cell in rows.replace("\n", "|").split("|")
    )
    first, second, third = (
        Attribute(number, unit, int(low), int(high), int(step)) for number, unit, low, high, step in numbers
    )
    return Domain(name, singular, (first, second, third), link, target, aspect, tuple(values), " ".join(closing))


DOMAINS = tuple(map(_read_domain, _TABLE.strip().split("\n\n")))

CAUSES = ("flood", "fire", "strike", "storm", "sale", "theft", "frost", "reform")
"""What made a value change between two editions."""

_FIRST = (
    "Amber Ashen Azure Bold Brave Bright Calm Cedar Cobalt Copper Coral Crimson Dawn Deep Dusty Eager "
    "Elder Fair Gentle Gilded Golden Grand Green Hidden Humble Ivory Jade Keen Lunar Marble Merry Misty "
    "Noble Olive Pearl Proud Quiet Ruby Rustic Scarlet Silent Silver Solar Stone Swift Tall Velvet Wild"
)
_SECOND = (
    "Acorn Anchor Badger Bear Beacon Bell Bridge Castle Cloud Comet Crane Crow Crystal Dove Eagle Ember "
    "Falcon Feather Forest Fox Garden Harbor Hawk Heron Hill Horse Lantern Lark Lion Maple Meadow Moon "
    "Orchard Otter Owl Pine Raven Reed Robin Rose Shadow Sparrow Star Thistle Tower Valley Willow Wolf"
)
FIRST_WORDS = tuple(_FIRST.split())
SECOND_WORDS = tuple(_SECOND.split())
"""A name is a first word and a second word: "Amber Falcon"."""


def domain_named(name: str) -> Domain:
    """The domain of that plural name, such as "rivers"."""
    for domain in DOMAINS:
        if domain.name == name:
            return domain
    known = ", ".join(domain.name for domain in DOMAINS)
    raise UsageError(f"the almanac has no domain {name!r}; it has {known}. Use one of these.")
