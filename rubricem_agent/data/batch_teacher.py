"""A teacher that answers in batches: all turns of a round go out together, and the run waits or stops until they are back."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rubricem_agent.data.asking import TeacherPrompts
from rubricem_agent.data.mailbox import Mailbox
from rubricem_agent.data.turns import PendingTurn, RepliesPending, TurnReply
from rubricem_env.domain.errors import ConfigError


class Carrier(Protocol):
    """Whoever answers the request files of a mailbox."""

    @property
    def name(self) -> str: ...

    async def carry(self, mailbox: Mailbox) -> None:
        """Answer what is unanswered, or return and leave it so."""
        ...

    async def aclose(self) -> None: ...


class Nobody:
    """No carrier: people, or a batch system of their own, answer the files."""

    name = "directory"

    async def carry(self, mailbox: Mailbox) -> None:
        return

    async def aclose(self) -> None:
        return


class BatchTeacher:
    """Posts each turn once, however often the run is started, and reads what has come in."""

    def __init__(self, mailbox: Mailbox, carrier: Carrier, *, prompts: TeacherPrompts) -> None:
        self._mailbox = mailbox
        self._carrier = carrier
        self._prompts = prompts

    @property
    def name(self) -> str:
        return self._carrier.name

    async def write(self, pending: Sequence[PendingTurn]) -> Sequence[TurnReply]:
        asked = self._mailbox.asked()
        self._refuse_other_questions(pending, asked)
        new = {turn.id: self._prompts.request(turn) for turn in pending if turn.id not in asked}
        if new:
            self._mailbox.post(new)
        await self._carrier.carry(self._mailbox)
        replies = self._mailbox.replies()
        if any(turn.id not in replies for turn in pending):
            waiting = ", ".join(path.name for path in self._mailbox.unanswered())
            raise RepliesPending(
                f"{waiting} in {self._mailbox.folder} waits for its replies. Start the same command again when they are there."
            )
        return [replies[turn.id] for turn in pending]

    async def aclose(self) -> None:
        await self._carrier.aclose()

    def _refuse_other_questions(self, pending: Sequence[PendingTurn], asked: Mapping[str, str]) -> None:
        """A first prompt holds the question and nothing that happens later: under its id it is the same each time."""
        for turn in pending:
            if turn.round == 1 and asked.get(turn.id, wanted := self._prompts.request(turn).prompt) != wanted:
                raise ConfigError(
                    f"{self._mailbox.folder} has asked for {turn.id!r} with another prompt, and would be answered with "
                    "what was said to that one. Give these questions ids of their own, or use another folder."
                )
