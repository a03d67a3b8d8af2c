"""Reading drills: a few pages, then what they say, each fact after the snippet that holds it.

A model of a million parameters that is taught research from nothing learns its form long before it learns to copy a
figure. On short texts with nothing else to learn, copying comes in minutes.
"""

from collections.abc import Iterator

import numpy as np

from rubricem_agent.data.chatml import ChatSample, Message
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.documents import Claim, FiledDocument
from rubricem_env.world.pages import sentence
from rubricem_env.world.splits import Split

FACTS = 3
"""At most so many are asked back."""
_FACTUAL = frozenset({"page", "sheet", "note", "stale"})


def drills_of(
    world: Almanac, *, split: Split, count: int, most_pages: int, rng: np.random.Generator
) -> Iterator[ChatSample]:
    """So many drills on entities of one split; each shows one to `most_pages` pages of one entity."""
    names = {entity.id: entity.name for entity in world.entities if entity.split == split}
    shelves: dict[str, list[FiledDocument]] = {}
    for filed in world.library.filed:
        if filed.kind in _FACTUAL and filed.claims and filed.claims[0].subject in names:
            shelves.setdefault(filed.claims[0].subject, []).append(filed)
    subjects = sorted(shelves)
    for number in range(count):
        subject = subjects[int(rng.integers(len(subjects)))]
        shelf = shelves[subject]
        chosen = rng.permutation(len(shelf))[: 1 + int(rng.integers(most_pages))]
        pages = [shelf[place] for place in chosen.tolist()]
        facts = [(f"S_{place}", claim) for place, page in enumerate(pages, start=1) for claim in page.claims]
        asked = [facts[place] for place in rng.permutation(len(facts))[:FACTS].tolist()]
        yield _sample(f"drill-{subject}-{number}", pages, asked, name=names[subject])


def _sample(drill: str, pages: list[FiledDocument], asked: list[tuple[str, Claim]], *, name: str) -> ChatSample:
    shown = "\n".join(
        f'<snippet id="S_{place}">{page.document.title}\n{page.document.text}</snippet>'
        for place, page in enumerate(pages, start=1)
    )
    said = " ".join(f"{snippet}: {sentence(claim.attribute, name, claim.value)}" for snippet, claim in asked)
    return ChatSample(
        id=drill,
        messages=(
            Message(role="system", content="Read."),
            Message(role="user", content=shown),
            Message(role="assistant", content=said),
        ),
        spans=((0, len(said)),),
    )
