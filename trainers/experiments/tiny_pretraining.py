"""The parts of the tiny policy's training: questions with references, reading tasks, pretraining, evaluation, tokenizer.

A model of a million parameters that learns research from nothing learns its form long before it learns to copy a
figure. Reading tasks, short texts with nothing else to learn, teach copying in minutes.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-untyped]
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from rubricem_agent.data.chatml import ChatSample, Message, TokenSample, encode_sample
from rubricem_agent.data.filter import normalize
from rubricem_agent.data.generate import Trace
from rubricem_agent.memory.bank import Retrieval, RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.inject import Injector, count_roughly
from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
from rubricem_agent.prompting import AgentPrompt, fill
from rubricem_agent.reflection.candidates import RUBRICS, TAKEAWAYS, reflection_prompt, render_transcript
from rubricem_agent.rollout.run import Setting, run_groups
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.judgement import Reflection
from rubricem_env.domain.trajectory import AnswerFormat, Query
from rubricem_env.env.research_env import query_of, shipped_toolbox
from rubricem_env.scaffold.grammar import CALL_TOOL, CITE, GRAMMAR, SNIPPET
from rubricem_env.scaffold.reading import Reading, read_trajectory
from rubricem_env.scaffold.untrusted import neutralize
from rubricem_env.tools.base import GOOGLE_SEARCH, SNIPPET_SEARCH, Toolbox
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.world.almanac import Almanac, load_questions, shipped_questions_path
from rubricem_env.world.documents import Claim, Draft, sentence
from rubricem_env.world.entities import Split
from rubricem_env.world.expert import Lesson
from rubricem_env.world.judge import true_quality
from rubricem_env.world.questions import Question
from trainers.sft_parts.launch import OneProcess
from trainers.sft_parts.settings import SftSchedule


class PretrainingWorld(NamedTuple):
    """The training questions of one almanac world by task id, some of them with references, and the tools to answer them."""

    alone: dict[str, Question]
    guided: dict[str, Question]
    toolbox: Toolbox

    @classmethod
    def from_seed(cls, number: int, *, guided: float, seed: int) -> "PretrainingWorld":
        """The world of that seed; each question is guided with the given probability."""
        almanac = Almanac.from_seed(number)
        rng = np.random.default_rng([seed, number])
        alone: dict[str, Question] = {}
        with_references: dict[str, Question] = {}
        for question in almanac.questions_of("train"):
            (with_references if rng.random() < guided else alone)[f"world-{number}/{question.id}"] = question
        return cls(alone, with_references, offline_toolbox(Corpus(almanac.documents)))

    @property
    def questions(self) -> dict[str, Question]:
        return self.alone | self.guided

    def query(self, task: str) -> Query:
        """The query of a task; its source names the task."""
        question = self.alone.get(task) or self.guided[task]
        return query_of(question).model_copy(update={"source": source_of(task)})


def source_of(task: str) -> str:
    """The source of a task's query, by which its references are known."""
    return f"almanac:{task}"


def references_for(
    world: PretrainingWorld, traces: Sequence[Trace], lessons: Mapping[str, Lesson], *, rng: np.random.Generator
) -> dict[str, str]:
    """By source: the references shown before a guided question, from a bank of the lessons on first attempts.

    Bank and injector are those of training. Half of the questions get their own lesson, half those of similar questions.
    """
    bank = RubricBank.in_memory(HashingEmbedder())
    for trace in traces:
        query, lesson = trace.task.query, lessons[trace.task.id]
        bank.write(
            Reflection(query_key=query.key, question=query.question, rubrics=lesson.rubrics, takeaways=lesson.takeaways)
        )
    injector = Injector(count_tokens=count_roughly)
    blocks: dict[str, str] = {}
    for task, question in world.guided.items():
        mode: Retrieval = "within" if rng.random() < 0.5 else "cross"
        blocks[source_of(task)] = injector.inject("", bank.retrieve(question.question, mode), mode).block
    return blocks


FACTS = 3
"""The most facts of one task."""
_FACTUAL = frozenset({"page", "sheet", "note", "stale"})


def reading_tasks(
    world: Almanac, *, split: Split, count: int, most_pages: int, rng: np.random.Generator
) -> Iterator[ChatSample]:
    """`count` reading tasks on entities of one split: one to `most_pages` pages of an entity, then facts from them."""
    names = {entity.id: entity.name for entity in world.entities if entity.split == split}
    shelves: dict[str, list[Draft]] = {}
    for filed in world.library.filed:
        if filed.kind in _FACTUAL and filed.claims and filed.claims[0][0] in names:
            shelves.setdefault(filed.claims[0][0], []).append(filed)
    subjects = sorted(shelves)
    for number in range(count):
        subject = subjects[int(rng.integers(len(subjects)))]
        shelf = shelves[subject]
        chosen = rng.permutation(len(shelf))[: 1 + int(rng.integers(most_pages))]
        pages = [shelf[index] for index in chosen.tolist()]
        facts = [(f"S_{number_}", claim) for number_, page in enumerate(pages, start=1) for claim in page.claims]
        chosen_facts = [facts[index] for index in rng.permutation(len(facts))[:FACTS].tolist()]
        yield _sample(f"drill-{subject}-{number}", pages, chosen_facts, name=names[subject])


def _sample(id_: str, pages: list[Draft], facts: list[tuple[str, Claim]], *, name: str) -> ChatSample:
    shown = "\n".join(
        f'<snippet id="S_{number}">{page.document.title}\n{page.document.text}</snippet>'
        for number, page in enumerate(pages, start=1)
    )
    said = " ".join(f"{snippet}: {sentence(attribute, name, value)}" for snippet, (_, attribute, value) in facts)
    return _chat_sample(id_, "Read.", shown, said)


def _chat_sample(id_: str, system: str, user: str, assistant: str, **fields: Any) -> ChatSample:
    """A sample of one exchange, all of whose reply is learnt."""
    messages = (
        Message(role="system", content=system),
        Message(role="user", content=user),
        Message(role="assistant", content=assistant),
    )
    return ChatSample(id=id_, messages=messages, spans=((0, len(assistant)),), **fields)


def reflection_sample(trace: Trace, lesson: Lesson, *, system: str) -> ChatSample:
    """The reflection on a trace as a training sample, in the format of the reflector."""
    prompt = reflection_prompt(system)
    values = {
        "question": neutralize(trace.task.query.question.strip()),
        "trajectory": render_transcript(read_trajectory(normalize(trace.trajectory)), lambda shown: True),
    }
    return _chat_sample(
        f"{trace.task.id}/reflection",
        prompt.section("system"),
        fill(prompt.section("user"), values),
        f"<{RUBRICS}>\n{lesson.rubrics}\n</{RUBRICS}>\n<{TAKEAWAYS}>\n{lesson.takeaways}\n</{TAKEAWAYS}>",
        query_key=trace.trajectory.query_key,
        answer_format=trace.trajectory.answer_format,
        teacher="scripted",
        prompt_hash=prompt.hash,
    )


IGNORED = -100
LOG_EVERY = 100


def pretrain(
    base: Path, samples: Sequence[ChatSample], *, out: Path, batch_size: int, learning_rate: float, seed: int
) -> Path:
    """Train one pass over short samples, in padded batches in one process; returns the model's folder.

    Padded batches are several times as fast as rows one by one. It takes minutes and writes no checkpoint.
    """
    torch.manual_seed(seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    process = OneProcess.here("bf16")
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    model, optimizer = process.prepare(model, optimizer)
    encoded = [encode_sample(sample, tokenizer) for sample in samples]
    plan = SftSchedule(len(encoded), batch_size, 1, seed, learning_rate, 0.05)
    for step in range(1, plan.num_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate(step)
        ids, targets = pad([encoded[index] for index in plan.batch(step)])
        loss = pretraining_loss(model, ids.to(process.device), targets.to(process.device), process=process)
        process.backward(loss, is_last=True)
        process.clip(model, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % LOG_EVERY == 0 or step == plan.num_steps:
            sys.stderr.write(f"pretraining {step}/{plan.num_steps}  loss {float(loss.detach()):.4f}\n")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def pad(batch: Sequence[TokenSample]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, and the target at each position; padding is on the right, where a causal model never looks."""
    length = max(len(sample.ids) for sample in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    targets = torch.full((len(batch), length), IGNORED)
    for row, sample in enumerate(batch):
        tokens = torch.tensor(sample.ids)
        ids[row, : len(tokens)] = tokens
        targets[row, : len(tokens)] = torch.where(torch.tensor(sample.has_loss), tokens, IGNORED)
    return ids, targets


def pretraining_loss(model: Any, ids: torch.Tensor, targets: torch.Tensor, *, process: OneProcess) -> torch.Tensor:
    """The mean over the target tokens; logits are computed for these alone."""
    learnt = targets[:, 1:] != IGNORED
    with process.computing():
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        logits = model.lm_head(hidden[learnt])
    loss: torch.Tensor = cross_entropy(logits.float(), targets[:, 1:][learnt])
    return loss


TURN_TOKENS = 400
ROWS = 8
"""Episodes of the evaluation at once."""


class EvaluationScores(NamedTuple):
    """Means over the episodes of an evaluation on held-out almanac questions, by truth."""

    questions: int
    temperature: float
    valid: float
    """Accepted by strict mode."""
    answered: float
    needs_met: float
    """Of all needs that an answer has to meet."""
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


async def evaluate_policy(
    folder: Path, *, system: str, split: Split, num_questions: int, temperature: float = 0.0, seed: int = 0
) -> EvaluationScores:
    """Let a model answer held-out questions of the shipped world.

    Raises:
        ModelError: the model failed in an episode.
    """
    policy = LocalPolicy.over(load_model(folder), load_tokenizer(folder), rows=ROWS)
    questions = [question for question in load_questions(shipped_questions_path()) if question.split == split]
    chosen = [questions[number % len(questions)] for number in range(num_questions)]
    prompt = AgentPrompt(system, "")

    async def opened(query: Query) -> tuple[Opening, str]:
        return prompt.opening(query), prompt.hash

    queries = [query_of(one) for one in chosen]
    setting = Setting(
        policy, shipped_toolbox(), sampling=Sampling(temperature=temperature, max_turn_tokens=TURN_TOKENS)
    )
    try:
        groups = await run_groups(queries, opened, setting, group_size=1, concurrency=ROWS, seed=seed)
    finally:
        await policy.aclose()
    for (rollout,) in groups:
        if rollout.failure:
            raise ModelError(rollout.failure)
    episodes = [(q, rollout.reading, rollout.usage.output_tokens) for q, (rollout,) in zip(chosen, groups, strict=True)]
    return score_episodes(episodes, temperature)


def score_episodes(episodes: Sequence[tuple[Question, Reading, int]], temperature: float) -> EvaluationScores:
    """The scores of episodes: question, reading and number of tokens each."""
    required = [(_required_needs(question), reading.answer or "") for question, reading, _ in episodes]
    needs = [need.is_met_by(answer) for each, answer in required for need in each]
    conventions = [duty.is_met_by(r.answer or "") for q, r, _ in episodes for duty in q.truth.implicit_needs]
    qualities = [true_quality(question, reading) for question, reading, _ in episodes]
    return EvaluationScores(
        questions=len(episodes),
        temperature=temperature,
        valid=_mean([not reading.rejections for _, reading, _ in episodes]),
        answered=_mean([reading.is_complete for _, reading, _ in episodes]),
        needs_met=_mean(needs),
        conventions_met=_mean(conventions),
        plan=_mean([quality.plan for quality in qualities]),
        research=_mean([quality.research for quality in qualities]),
        review=_mean([quality.review for quality in qualities]),
        answer=_mean([quality.answer for quality in qualities]),
        policy_tokens=_mean([tokens for _, _, tokens in episodes]),
    )


def _required_needs(question: Question) -> Sequence[Any]:
    needs = question.truth.needs
    return needs[-1:] if question.answer_format is AnswerFormat.EXACT else needs


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4) if values else 0.0


PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
    " + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
ADDRESS = " https://almanac.example/d"
"""Of every page, up to its number."""
_WITH_ATTRIBUTES = frozenset({CALL_TOOL, CITE, SNIPPET})
_NUMBER = re.compile(r" ?\d+")
_SPACE = "Ġ"
"""How byte-level BPE writes a space."""


def scaffold_tokens() -> list[str]:
    """The tags as the policy writes them, opening tags with the attributes that they always have."""
    opening = [f"<{name}>" for name in GRAMMAR if name not in _WITH_ATTRIBUTES]
    calls = [f'<{CALL_TOOL} name="{name}">' for name in (GOOGLE_SEARCH, SNIPPET_SEARCH)]
    ids = [f'<{CITE} id="S_', f'<{SNIPPET} id="S_']
    return [*opening, *calls, *ids, *(f"</{name}>" for name in GRAMMAR)]


def train_tokenizer(texts: Iterable[str], *, vocabulary: int, max_tokens: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with ChatML specials and template.

    It has at most `vocabulary` tokens, tags and specials included, and the numbers of the texts in addition.

    A number of the texts is one token, so that a very small model copies it like a name; any other number is one token
    per digit. Tags are not special tokens: decoding keeps them, as it keeps Qwen3's <think>.
    """
    whole = [*scaffold_tokens(), ADDRESS]
    texts = [_without(text, whole) for text in texts]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(whole),
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((_NUMBER.sub("\n", text) for text in texts), trainer)
    tokenizer.model = _with_words(tokenizer, (number for text in texts for number in _NUMBER.findall(text)))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in (PAD, START, END)])
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=False) for name in whole])
    made: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, model_max_length=max_tokens
    )
    made.chat_template = CHAT_TEMPLATE
    return made


def _with_words(tokenizer: Any, words: Iterable[str]) -> Any:
    """The tokenizer's model with the words as additional tokens, which no merge produces."""
    trained = json.loads(tokenizer.to_str())["model"]
    vocabulary: dict[str, int] = trained["vocab"]
    for word in sorted({word.replace(" ", _SPACE) for word in words}):
        vocabulary.setdefault(word, len(vocabulary))
    merges = [tuple(merge) for merge in trained["merges"]]
    return models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True)


def _without(text: str, words: Iterable[str]) -> str:
    for word in words:
        text = text.replace(word, "\n")
    return text
