"""A teacher behind a live chat API. Turns are asked for at once; a turn that fails for good is a reply with an error."""

from collections.abc import Sequence

from rubricem_agent.data.asking import TeacherPrompts
from rubricem_agent.data.turns import PendingTurn, TurnReply
from rubricem_env.domain.errors import ModelError
from rubricem_env.judge.together import run_together
from rubricem_env.llm.base import ChatModel, ChatReply, Finish, advise_on_model_error
from rubricem_env.llm.retry import RetryPolicy, Timing, call_with_retry


class ChatTeacher:
    """Asks a model, which limits and meters itself. A reached ceiling passes through: the journal keeps what is paid."""

    def __init__(self, model: ChatModel, prompts: TeacherPrompts, *, timing: Timing, retry: RetryPolicy) -> None:
        self._model = model
        self._prompts = prompts
        self._timing = timing
        self._retry = retry

    @property
    def name(self) -> str:
        return self._model.name

    async def write(self, pending: Sequence[PendingTurn]) -> Sequence[TurnReply]:
        return await run_together(self._write(turn) for turn in pending)

    async def aclose(self) -> None:
        await self._model.aclose()

    async def _write(self, turn: PendingTurn) -> TurnReply:
        request = self._prompts.request(turn)

        async def ask() -> ChatReply:
            return await self._model.complete(request)

        try:
            reply = await call_with_retry(
                ask,
                doing=f"ask the teacher for turn {turn.id}",
                error=ModelError,
                advise=advise_on_model_error,
                policy=self._retry,
                timing=self._timing,
            )
        except ModelError as failure:
            return TurnReply(id=turn.id, error=str(failure))
        if reply.finish is Finish.BLOCKED:
            return TurnReply(id=turn.id, error="the server refused to write this turn")
        return TurnReply(id=turn.id, text=reply.text)
