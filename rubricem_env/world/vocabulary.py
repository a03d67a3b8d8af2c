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


RIVERS = Domain(
    "rivers",
    "river",
    (Attribute("length", "km", 20, 400, 10), Attribute("depth", "m", 2, 40, 1), Attribute("width", "m", 45, 300, 5)),
    "mouth",
    "towns",
    "season",
    ("spring", "summer", "autumn", "winter"),
    "at low water",
)
TOWNS = Domain(
    "towns",
    "town",
    (Attribute("size", "homes", 100, 900, 10), Attribute("area", "ha", 10, 95, 1), Attribute("rise", "m", 50, 900, 10)),
    "employer",
    "firms",
    "census",
    ("full", "sample", "register", "postal"),
    "by night",
)
FIRMS = Domain(
    "firms",
    "firm",
    (
        Attribute("revenue", "million", 5, 95, 1),
        Attribute("staff", "people", 20, 900, 10),
        Attribute("debt", "million", 100, 400, 5),
    ),
    "flagship",
    "ships",
    "currency",
    ("crown", "florin", "ducat", "mark"),
    "before tax",
)
LAWS = Domain(
    "laws",
    "law",
    (
        Attribute("fine", "coins", 10, 500, 10),
        Attribute("term", "days", 5, 90, 1),
        Attribute("scope", "articles", 3, 60, 1),
    ),
    "subject",
    "drugs",
    "court",
    ("coastal", "inland", "island", "border"),
    "without appeal",
)
DRUGS = Domain(
    "drugs",
    "drug",
    (
        Attribute("dose", "mg", 5, 400, 5),
        Attribute("onset", "minutes", 5, 90, 1),
        Attribute("duration", "hours", 2, 48, 1),
    ),
    "source",
    "plants",
    "route",
    ("oral", "nasal", "skin", "vein"),
    "for adults",
)
SHIPS = Domain(
    "ships",
    "ship",
    (Attribute("beam", "m", 4, 40, 1), Attribute("speed", "knots", 6, 45, 1), Attribute("crew", "people", 10, 300, 5)),
    "port",
    "towns",
    "load",
    ("empty", "half", "laden", "ballast"),
    "in calm sea",
)
PLANTS = Domain(
    "plants",
    "plant",
    (Attribute("height", "cm", 10, 300, 5), Attribute("leaf", "mm", 4, 80, 1), Attribute("bloom", "days", 5, 60, 1)),
    "record",
    "journals",
    "soil",
    ("clay", "sand", "peat", "chalk"),
    "under glass",
)
JOURNALS = Domain(
    "journals",
    "journal",
    (
        Attribute("print", "pages", 20, 400, 10),
        Attribute("price", "coins", 5, 90, 1),
        Attribute("reach", "readers", 100, 900, 10),
    ),
    "owner",
    "firms",
    "review",
    ("open", "blind", "editor", "panel"),
    "on paper",
)
DOMAINS = (RIVERS, TOWNS, FIRMS, LAWS, DRUGS, SHIPS, PLANTS, JOURNALS)

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
