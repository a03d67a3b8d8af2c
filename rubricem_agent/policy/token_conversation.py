"""A conversation in tokens: ids in, ids and log-probabilities out, only ever appended to, never tokenised again."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rubricem_agent.policy.base import ContextOverflow, Emission, Listener, Opening, Piece, TurnEnd
from rubricem_agent.policy.token_bytes import TurnText
from rubricem_agent.policy.tokenizer import PolicyTokenizer
from rubricem_agent.policy.watch import TurnWatch, kept_length
from rubricem_env.llm.usage import Usage


class TokenDraw(NamedTuple):
    """One token as the policy drew it."""

    id: int
    logprob: float


class TokenTurn:
    """One turn as it is drawn, token by token; says when to stop."""

    def __init__(self, tokenizer: PolicyTokenizer, listener: Listener) -> None:
        self._tokenizer = tokenizer
        self._listener = listener
        self._watch = TurnWatch()
        self.written = TurnText()
        self.draws: list[TokenDraw] = []
        self.end: TurnEnd | None = None

    def take(self, draw: TokenDraw) -> TurnEnd | None:
        """Append a token; why the turn is over after it, or None."""
        self.draws.append(draw)
        if draw.id in self._tokenizer.end_ids:
            self.written.feed(b"")
            self.end = TurnEnd.STOPPED
            return self.end
        piece = self.written.feed(self._tokenizer.token_bytes(draw.id))
        if piece:
            self._listener.wrote(piece)
            self.end = self._watch.feed(piece)
        return self.end

    def close(self) -> None:
        """No further token comes."""
        rest = self.written.close()
        if rest:
            self._listener.wrote(rest)


class TokenEngine(Protocol):
    """What draws tokens after given ids."""

    @property
    def tokenizer(self) -> PolicyTokenizer: ...

    @property
    def max_length(self) -> int:
        """Tokens that a conversation can have in all."""
        ...

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        """Draw tokens after `ids` and hand each to `turn`, until it says that it is over or `max_tokens` are drawn.

        Between calls `ids` only grows, except that tokens of the last turn may have been taken back from its end.

        Raises:
            ModelError: the engine failed.
        """
        ...

    def release(self) -> None:
        """Give back what is held for the conversation."""
        ...


class TokenConversation:
    """The ids of one episode."""

    def __init__(self, engine: TokenEngine, prompt_ids: Sequence[int]) -> None:
        self._engine = engine
        self._ids = list(prompt_ids)
        self._pieces = [Piece(tuple(prompt_ids))]

    @classmethod
    def begin(cls, engine: TokenEngine, opening: Opening) -> "TokenConversation":
        """With the opening's ids."""
        return cls(engine, engine.tokenizer.encode_opening(opening))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(self._pieces)

    async def emit(self, *, max_tokens: int, listener: Listener) -> Emission:
        """Draw a turn; the tokens up to and with the one that completes the action are kept.

        Raises:
            ContextOverflow: no token fits any more.
        """
        room = self._engine.max_length - len(self._ids)
        if room <= 0:
            raise ContextOverflow(
                f"the conversation has {len(self._ids)} tokens and the policy reads {self._engine.max_length}."
            )
        turn = TokenTurn(self._engine.tokenizer, listener)
        usage = await self._engine.draw(self._ids, turn, max_tokens=min(max_tokens, room))
        turn.close()
        self._keep(turn)
        return Emission(turn.written.text, turn.end or TurnEnd.LENGTH, usage)

    def observe(self, text: str) -> None:
        """Append foreign text, tokenised apart: its first token never merges with the policy's last one."""
        ids = self._engine.tokenizer.encode_foreign(text)
        self._ids += ids
        self._pieces.append(Piece(tuple(ids)))

    def close(self) -> None:
        self._engine.release()

    def _keep(self, turn: TokenTurn) -> None:
        """Cut in tokens what the episode cuts in text. A token that straddles the cut is kept with its overhang."""
        text, starts = turn.written.text, turn.written.starts
        kept = kept_length(text)
        # Tokens that begin at the very end, such as the one that ends the turn, say nothing beyond it: nothing was cut.
        count = len(starts) if kept == len(text) else sum(start < kept for start in starts)
        until = starts[count] if count < len(starts) else len(text)
        draws = turn.draws[:count]
        self._ids += [draw.id for draw in draws]
        ids, logprobs = tuple(draw.id for draw in draws), tuple(draw.logprob for draw in draws)
        piece = Piece(ids, True, logprobs, starts=tuple(starts[:count]), overhang=text[kept:until] if draws else "")
        self._pieces.append(piece)
