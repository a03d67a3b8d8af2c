"""What the scripted expert says of each need, with its sources."""

from typing import NamedTuple

from rubricem_env.world.expert_faults import Slips
from rubricem_env.world.expert_searches import ExpertProgress, Shown, Target, wanted_duties, wanted_needs
from rubricem_env.world.needs import Need, Trap, mentions
from rubricem_env.world.questions import Question

_PREFERRED = ("stale", "rival", "lookalike", "hostile")


class NeedAnswer(NamedTuple):
    """What the expert says of one need."""

    target: Target
    sentence: str
    """The sentence ends in a full stop. It is empty for a gap."""
    value: str
    sources: tuple[str, ...]
    """Ids of shown snippets."""

    @property
    def is_gap(self) -> bool:
        return not self.sentence


def find_all(question: Question, slips: Slips, *, progress: ExpertProgress) -> tuple[NeedAnswer, ...]:
    """An answer to each fact that the question asks for, conventions last. The expert's slips may leave one out."""
    trusted = _trusted_trap(question, progress) if slips.trusts_stale else None
    answers: dict[str, NeedAnswer] = {}
    for need in wanted_needs(question, slips):
        if need.id == slips.unfounded:
            answers[need.id] = _invent(need, slips, progress=progress)
        elif trusted is not None and need.id == trusted[0].need_id:
            answers[need.id] = _say(need, trusted[0].wrong_value, sources=(trusted[1].snippet_id,))
        else:
            answers[need.id] = _look_up(need, progress, answers=answers)
    duties = (_look_up(duty, progress, answers=answers) for duty in wanted_duties(question, slips))
    return (*answers.values(), *duties)


def _look_up(target: Target, progress: ExpertProgress, *, answers: dict[str, NeedAnswer]) -> NeedAnswer:
    if isinstance(target, Need) and target.kind == "verdict":
        grounds = [answers[name] for name in target.depends_on if name in answers]
        is_founded = len(grounds) == len(target.depends_on) and not any(ground.is_gap for ground in grounds)
        sources = tuple(dict.fromkeys(source for ground in grounds for source in ground.sources))
        return NeedAnswer(target, target.sentence if is_founded else "", target.value, sources)
    source = progress.source_of(target.document_ids)
    return NeedAnswer(target, target.sentence if source else "", target.value, (source.snippet_id,) if source else ())


def _invent(need: Need, slips: Slips, *, progress: ExpertProgress) -> NeedAnswer:
    """A value that no page has shown, with the last page as its alleged source."""
    pages = " ".join(shown.text for shown in progress.shown)
    value = next(value for value in slips.inventions if not mentions(pages, value))
    return _say(need, value, sources=tuple(shown.snippet_id for shown in progress.shown[-1:]))


def _say(need: Need, value: str, *, sources: tuple[str, ...]) -> NeedAnswer:
    return NeedAnswer(need, need.sentence.replace(need.value, value), value, sources)


def _trusted_trap(question: Question, progress: ExpertProgress) -> tuple[Trap, Shown] | None:
    """The first trap that a page has set, the misleading kinds first."""
    for kind in _PREFERRED:
        for trap in question.truth.traps:
            source = progress.source_of(trap.document_ids)
            if trap.kind == kind and source is not None and mentions(source.text, trap.wrong_value):
                return trap, source
    return None
