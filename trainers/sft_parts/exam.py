"""An exam on held-out almanac questions: how often the scaffold is valid, and how much of the truth is found."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from rubricem_agent.prompting.agent_prompt import AgentPrompt
from rubricem_env.domain.query import AnswerFormat
from rubricem_env.env.drive import advance
from rubricem_env.env.episode import Episode, Finished
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.env.offline import query_of, shipped_toolbox
from rubricem_env.scaffold.reading import Reading
from rubricem_env.scaffold.violations import Mode
from rubricem_env.world.jsonl import load_questions, shipped_questions_path
from rubricem_env.world.quality import true_quality
from rubricem_env.world.questions import Question
from rubricem_env.world.splits import Split

TURN_TOKENS = 400
ACTION_ENDS = ("</call_tool>", "</answer>")


class Grades(NamedTuple):
    """Shares over the exam's episodes."""

    questions: int
    temperature: float
    valid: float
    """Accepted by strict mode."""
    answered: float
    needs_met: float
    """Of all needs that an answer owes."""
    conventions_met: float
    plan: float
    research: float
    review: float
    answer: float
    """True quality by stage."""
    policy_tokens: float
    """Of an episode, on average."""

    @property
    def sentence(self) -> str:
        return (
            f"{self.questions} questions at temperature {self.temperature:g}: {self.valid:.0%} valid, "
            f"{self.needs_met:.0%} of needs met, {self.conventions_met:.0%} of conventions; true quality of plan "
            f"{self.plan:.2f}, research {self.research:.2f}, review {self.review:.2f}, answer {self.answer:.2f}"
        )


class Candidate:
    """A model that sits one exam paper: it keeps the whole conversation in its cache."""

    def __init__(self, model: Any, tokenizer: Any, *, temperature: float, rng: torch.Generator) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._temperature = temperature
        self._rng = rng
        self._cache = DynamicCache()
        self._unread: list[int] = []
        self.tokens_written = 0

    def read(self, text: str, *, is_prompt: bool = False) -> None:
        """Take in a prompt, whose special tokens count, or what a tool has shown, whose do not."""
        self._unread += self._tokenizer(text, add_special_tokens=False, split_special_tokens=not is_prompt).input_ids

    def write(self, ends: frozenset[int]) -> str:
        """The next turn, up to and with the end of its action."""
        written: list[int] = []
        while (
            len(written) < TURN_TOKENS and self._cache.get_seq_length() < self._model.config.max_position_embeddings - 2
        ):
            written.append(self._next())
            self._unread = [written[-1]]
            if written[-1] in ends or written[-1] == self._tokenizer.eos_token_id:
                break
        self.tokens_written += len(written)
        return str(self._tokenizer.decode(written, skip_special_tokens=True))

    def _next(self) -> int:
        with torch.inference_mode():
            logits = self._model(
                input_ids=torch.tensor([self._unread]), past_key_values=self._cache, use_cache=True, logits_to_keep=1
            ).logits[0, -1]
        if self._temperature == 0:
            return int(logits.argmax())
        return int(torch.multinomial((logits / self._temperature).softmax(-1), 1, generator=self._rng))


async def hold_exam(
    folder: Path, *, system: str, split: Split, num_questions: int, temperature: float = 0.0, seed: int = 0
) -> Grades:
    """Let a model answer questions of the shipped world that it was not trained on."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    questions = [question for question in load_questions(shipped_questions_path()) if question.split == split]
    rng = torch.Generator().manual_seed(seed)
    papers = []
    for place in range(num_questions):
        candidate = Candidate(model, tokenizer, temperature=temperature, rng=rng)
        question = questions[place % len(questions)]
        papers.append(
            (question, await _sit(candidate, question, system=system, tokenizer=tokenizer), candidate.tokens_written)
        )
    return grade(papers, temperature)


async def _sit(candidate: Candidate, question: Question, *, system: str, tokenizer: Any) -> Reading:
    ends = frozenset(tokenizer.convert_tokens_to_ids(end) for end in ACTION_ENDS)
    opening = AgentPrompt(system, "").opening(query_of(question))
    conversation = [{"role": "system", "content": opening.system}, {"role": "user", "content": opening.user}]
    prompt = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    episode = Episode(query_of(question), limits=EpisodeLimits())
    candidate.read(prompt, is_prompt=True)
    reply = await advance(episode, shipped_toolbox(), candidate.write(ends))
    while not isinstance(reply, Finished):
        candidate.read(reply.observation)
        reply = await advance(episode, shipped_toolbox(), candidate.write(ends))
    return episode.read()


def grade(papers: Sequence[tuple[Question, Reading, int]], temperature: float) -> Grades:
    """The grades over questions, readings and numbers of tokens."""
    owed = [(_owed(question), reading.answer or "") for question, reading, _ in papers]
    needs = [need.is_met_by(answer) for each, answer in owed for need in each]
    duties = [duty.is_met_by(r.answer or "") for q, r, _ in papers for duty in q.truth.implicit_needs]
    qualities = [true_quality(question, reading) for question, reading, _ in papers]
    return Grades(
        questions=len(papers),
        temperature=temperature,
        valid=_mean([not reading.rejects(Mode.STRICT) for _, reading, _ in papers]),
        answered=_mean([reading.is_complete for _, reading, _ in papers]),
        needs_met=_mean(needs),
        conventions_met=_mean(duties),
        plan=_mean([quality.plan for quality in qualities]),
        research=_mean([quality.research for quality in qualities]),
        review=_mean([quality.review for quality in qualities]),
        answer=_mean([quality.answer for quality in qualities]),
        policy_tokens=_mean([tokens for _, _, tokens in papers]),
    )


def _owed(question: Question) -> Sequence[Any]:
    needs = question.truth.needs
    return needs[-1:] if question.answer_format is AnswerFormat.EXACT else needs


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4) if values else 0.0
