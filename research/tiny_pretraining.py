"""The texts of the tiny policy's training: questions with references, reading drills, weights, the tokenizer.

A model of a million parameters that learns research from nothing learns its form long before it learns to copy a
figure. Reading drills, short texts with nothing else to learn, teach copying in minutes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerFast

from rubricem_agent.data.base import Trace
from rubricem_agent.data.chatml import ChatSample, ChatTurn, encode_sample
from rubricem_agent.data.filter import normalize
from rubricem_agent.memory.bank import Retrieval, RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.inject import Injector
from rubricem_agent.prompting import fill
from rubricem_agent.reflection.candidates import RUBRICS, TAKEAWAYS, reflection_prompt, render_transcript
from rubricem_env.domain.reflection import Reflection
from rubricem_env.domain.trajectory import Query
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, CITE, GRAMMAR, SNIPPET, TOOL_OUTPUT
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.scaffold.untrusted import neutralize
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.tools.render import estimate_tokens
from rubricem_env.tools.spec import GOOGLE_SEARCH, SNIPPET_SEARCH
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.documents import Draft, sentence, write_pages
from rubricem_env.world.draws import pick, shuffled
from rubricem_env.world.entities import populate
from rubricem_env.world.lessons import Lesson
from rubricem_env.world.names import Split, split_of_name
from rubricem_env.world.offline import query_of
from rubricem_env.world.questions import Question
from rubricem_env.world.vocabulary import DOMAINS, FIRST_WORDS, SECOND_WORDS

WORLD_ENTITIES = 16
"""In each domain of a world of traces: ten of train, as many as the shipped world has in all."""


class PretrainingWorld(NamedTuple):
    """The training questions of an almanac world by task id, some with references, and the tools to answer them.

    The tools find no page with a held-out name.
    """

    alone: dict[str, Question]
    guided: dict[str, Question]
    toolbox: Toolbox

    @classmethod
    def from_seed(cls, number: int, *, guided: float, seed: int) -> "PretrainingWorld":
        """The world of that seed; each question is guided with the given probability."""
        almanac = Almanac.from_seed(number, entities_per_domain=WORLD_ENTITIES)
        held_out = [entity.name for entity in almanac.entities if entity.split != "train"]
        documents = [
            page for page in almanac.documents if not any(name in f"{page.title} {page.text}" for name in held_out)
        ]
        rng = np.random.default_rng([seed, number])
        alone: dict[str, Question] = {}
        with_references: dict[str, Question] = {}
        for question in almanac.questions_of("train"):
            (with_references if rng.random() < guided else alone)[f"world-{number}/{question.id}"] = question
        return cls(alone, with_references, offline_toolbox(Corpus(documents)))

    @property
    def questions(self) -> dict[str, Question]:
        return self.alone | self.guided

    def query(self, task: str) -> Query:
        """The query of a task; its source names the task."""
        question = self.alone.get(task) or self.guided[task]
        return query_of(question).model_copy(update={"source": f"almanac:{task}"})


def references_for(
    world: PretrainingWorld, traces: Sequence[Trace], lessons: Mapping[str, Lesson], *, rng: np.random.Generator
) -> dict[str, str]:
    """By source: the references shown before a guided question, from a bank of the lessons on first attempts.

    Bank and injector are those of training. Half of the questions get their own lesson, half that of similar questions.
    """
    bank = RubricBank.in_memory(HashingEmbedder())
    for trace in traces:
        query, lesson = trace.task.query, lessons[trace.task.id]
        bank.write(
            Reflection(query_key=query.key, question=query.question, rubrics=lesson.rubrics, takeaways=lesson.takeaways)
        )
    injector = Injector(count_tokens=estimate_tokens)
    blocks: dict[str, str] = {}
    for task, question in world.guided.items():
        mode: Retrieval = "within" if rng.random() < 0.5 else "cross"
        blocks[f"almanac:{task}"] = injector.render(bank.retrieve(question.question, mode), mode)[0]
    return blocks


class LearntText(NamedTuple):
    """Tokens, and how much each of them weighs as a target; 0 where nothing is learnt."""

    ids: list[int]
    weights: list[float]


def learnt_sample(sample: ChatSample, tokenizer: Any) -> LearntText:
    """A trace or a reflection with the weights of its tokens.

    What is copied weighs twice, the start of an answer five times, a boxed value eight times.
    """
    encoded = encode_sample(sample, tokenizer)
    ids, has_loss = encoded.ids, encoded.has_loss
    words = tokenizer.convert_ids_to_tokens(ids)
    weights = []
    for number, word in enumerate(words):
        before = words[number - 1] if number else ""
        is_copied = word in _COPIED or _NUMBER.fullmatch(word)  # a name, a figure or a snippet's number
        weight = 8.0 if before == _BOX else 5.0 if before == f"<{ANSWER}>" else 2.0 if is_copied else 1.0
        weights.append(weight if has_loss[number] else 0.0)
    return LearntText(ids, weights)


_BOX = "\\boxed{"
_SPACE = "Ġ"
"""How a byte-level tokenizer writes a space."""
_COPIED = frozenset(space + name for name in (*FIRST_WORDS, *SECOND_WORDS) for space in ("", _SPACE))
_NUMBER = re.compile(r"\d+|S_\d+")


def first_turn(text: LearntText, end: int) -> LearntText | None:
    """A trace up to its first call, whose closing tag is the token `end`; None for a reflection."""
    calls = (number for number, token in enumerate(text.ids) if token == end and text.weights[number])
    last = next(calls, None)
    return None if last is None else LearntText(text.ids[: last + 1], text.weights[: last + 1])


ADDRESSES = 410
"""The documents of the shipped world: a drill's pages have such numbers."""
SNIPPETS = 40
FACTS = 8
"""The most facts that a drill asks for."""
BOXED, VALUE, FORM, CHOICE = 2.0, 1.0, 0.3, 0.05
"""The weights of a boxed value, of a value, of the words around it, and of what nothing in the context decides."""
Weighed = list[tuple[str, float]]
"""Pieces of a text with their weights."""


def reading_drills(
    seed: int, split: Split, rng: np.random.Generator, *, fewest: int, most: int, entities: int = 24
) -> Iterator[tuple[str, Weighed]]:
    """A fresh world's reading drills: snippets on an entity among those of others, and facts to be copied from them.

    Half of the others look like the entity. A fact is copied as in an evaluation, a review or an answer; then one is
    boxed.
    """
    world = [entity for entity in populate(seed, entities) if entity.split == split]
    names = {entity.id: entity.name for entity in world}
    shelves: dict[str, list[Draft]] = {name: [] for name in names}
    for page in write_pages(seed, tuple(world)):
        for subject in {subject for subject, _, _ in page.claims} & names.keys():
            shelves[subject].append(page)
    for entity in shuffled(rng, world):
        cohort = [other.id for other in world if other.domain == entity.domain and other != entity]
        rivals = [other for other in cohort if other in entity.lookalike_ids]
        count = int(rng.integers(fewest, most + 1))
        pages = shuffled(rng, shelves[entity.id])[: int(rng.integers(1, count + 1))]
        while len(pages) < count:
            pages.append(pick(rng, shelves[pick(rng, rivals if rivals and rng.random() < 0.5 else cohort)]))
        yield _drill(shuffled(rng, pages), names, rng)


def echo_drill(rng: np.random.Generator) -> tuple[str, Weighed]:
    """A few sentences about names that no world has, and the same sentences in another order.

    Names are drawn like words of a dictionary, so nothing but the sentence above says how one goes on.
    """
    lines = []
    for _ in range(int(rng.integers(2, 9))):
        domain = pick(rng, DOMAINS)
        name, other = (_train_name(rng) for _ in range(2))
        figure = pick(rng, domain.attributes)
        value = f"{pick(rng, range(figure.low, figure.high + 1, figure.step))} {figure.unit}"
        facts = {figure.name: value, domain.link: other, domain.aspect: pick(rng, domain.aspect_values)}
        lines.append((name, *pick(rng, [(figure.name, value), *facts.items()])))
    said: Weighed = []
    for name, attribute, value in shuffled(rng, lines):
        first, second = name.split()
        before, after = stated(attribute, "").split(_GAP)
        said += [(first, CHOICE), (f" {second}", VALUE), (before, 0.1), *_weighed(value, VALUE), (f"{after} ", 0.1)]
    return " ".join(sentence(attribute, name, value) for name, attribute, value in lines), said


def _train_name(rng: np.random.Generator) -> str:
    while True:
        first, second = (int(rng.integers(len(words))) for words in (FIRST_WORDS, SECOND_WORDS))
        if split_of_name(first, second) == "train":
            return f"{FIRST_WORDS[first]} {SECOND_WORDS[second]}"


def _drill(pages: Sequence[Draft], names: Mapping[str, str], rng: np.random.Generator) -> tuple[str, Weighed]:
    """What is shown, and the reply with the weights of its pieces."""
    start = 1 if rng.random() < 0.5 else int(rng.integers(1, SNIPPETS // 2))
    shown = "".join(
        f'<{SNIPPET} id="S_{number}">{page.title} | '
        f"https://almanac.example/d{int(rng.integers(1, ADDRESSES + 1)):03d}\n"
        f"{page.text}</{SNIPPET}>\n"
        for number, page in enumerate(pages, start)
    )
    values: dict[tuple[str, str], set[str]] = {}
    for page in pages:
        for subject, attribute, value in page.claims:
            values.setdefault((subject, attribute), set()).add(value)
    claims = [(f"S_{number}", page.kind, claim) for number, page in enumerate(pages, start) for claim in page.claims]
    form = int(rng.integers(3))
    said: Weighed = []
    for source, kind, (subject, attribute, value) in shuffled(rng, claims)[:FACTS]:
        is_old = kind == "stale" and rng.random() < 0.5
        before, after = stated(f"old {attribute}" if is_old else attribute, names[subject]).split(_GAP)
        fact = [(before, FORM), *_weighed(value, VALUE), (after, FORM)]
        if form == 0:
            said += [(source, CHOICE), (": ", FORM), *fact, ("\n", FORM)]
        elif form == 2:
            said += [(f'<{CITE} id="', FORM), (source, CHOICE), ('">', FORM), *fact, (f"</{CITE}> ", FORM)]
        elif is_old or len(values[subject, attribute]) == 1:
            first = next(number for number, _, claim in claims if claim == (subject, attribute, value))
            said += [*fact, (" (", FORM), (first, VALUE), (")\n", FORM)]
    plain = [
        claim for _, _, claim in claims if len(values[claim[0], claim[1]]) == 1 and not claim[1].endswith(" change")
    ]
    if plain:
        subject, attribute, value = pick(rng, plain)
        before, after = stated(attribute, names[subject]).split(_GAP)
        said += [("<writing_plan>", 0.1), (before, 0.1), *_weighed(value, VALUE), (after, FORM)]
        boxed = f"</writing_plan></review><{ANSWER}>\\boxed{{"
        said += [(boxed, FORM), *_weighed(value, BOXED), (f"}}</{ANSWER}>", FORM)]
    return f"<{TOOL_OUTPUT}>\n{shown}</{TOOL_OUTPUT}>", said


def _weighed(value: str, weight: float) -> Weighed:
    """The value; a unit follows from the attribute."""
    if not value[0].isdigit():
        return [(value, weight)]
    number, _, unit = value.partition(" ")
    return [(number, weight), (f" {unit}", FORM)]


_GAP = "\0"


def stated(attribute: str, name: str) -> str:
    """The sentence of a fact or of the cause of a change, with a gap for the value."""
    of_change = attribute.removesuffix(" change")
    return sentence(attribute, name, _GAP) if of_change == attribute else f"A {_GAP} changed the {of_change} of {name}."


def learnt_drill(shown: str, said: Weighed, tokenizer: Any) -> LearntText:
    """The drill as a conversation of one exchange. A token has the weight of its last character."""
    opening = [{"role": "system", "content": "Read."}, {"role": "user", "content": shown}]
    prompt = tokenizer.apply_chat_template(opening, tokenize=False, add_generation_prompt=True)
    head = tokenizer(prompt, add_special_tokens=False).input_ids
    reply = tokenizer("".join(text for text, _ in said), add_special_tokens=False, return_offsets_mapping=True)
    weights = [weight for text, weight in said for _ in text]
    tail = [weights[end - 1] for _, end in reply.offset_mapping]
    return LearntText([*head, *reply.input_ids, tokenizer.eos_token_id], [0.0] * len(head) + tail + [FORM])


def reflection_sample(trace: Trace, lesson: Lesson, *, system: str) -> ChatSample:
    """The reflection on a trace as a training sample, in the format of the reflector."""
    prompt = reflection_prompt(system)
    values = {
        "question": neutralize(trace.task.query.question.strip()),
        "trajectory": render_transcript(parse_trajectory(normalize(trace.trajectory))),
    }
    reply = f"<{RUBRICS}>\n{lesson.rubrics}\n</{RUBRICS}>\n<{TAKEAWAYS}>\n{lesson.takeaways}\n</{TAKEAWAYS}>"
    return ChatSample(
        id=f"{trace.task.id}/reflection",
        messages=(
            ChatTurn(role="system", content=prompt.section("system")),
            ChatTurn(role="user", content=fill(prompt.section("user"), values)),
            ChatTurn(role="assistant", content=reply),
        ),
        spans=((0, len(reply)),),
        query_key=trace.trajectory.query_key,
        answer_format=trace.trajectory.answer_format,
        teacher="scripted",
        prompt_hash=prompt.hash,
    )


PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
    " + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_WITH_ATTRIBUTES = frozenset({CALL_TOOL, CITE, SNIPPET})
_WORDS = (
    r" \| https://almanac\.example/d\d+\n|S_\d+|\d+|\.\.\.|\">|\\boxed\{| ?\p{L}+(?: (?=\d|S_\d))?"
    r"| ?[^\s\p{L}\d](?: (?=\d|S_\d))?|\n+|\s"
)
"""A word with the space before it, a page's address, a snippet's number. A space before a figure or a snippet's number
goes to the token before, so that either is one and the same token wherever it stands."""


def scaffold_tokens() -> list[str]:
    """The tags as the policy writes them, opening tags with the attributes that they always have."""
    opening = [f"<{name}>" for name in GRAMMAR if name not in _WITH_ATTRIBUTES]
    calls = [f'<{CALL_TOOL} name="{name}">' for name in (GOOGLE_SEARCH, SNIPPET_SEARCH)]
    ids = [f'<{CITE} id="', f'<{SNIPPET} id="']
    return [*opening, *calls, *ids, *(f"</{name}>" for name in GRAMMAR)]


def word_tokenizer(texts: Iterable[str], *, max_tokens: int) -> PreTrainedTokenizerFast:
    """A tokenizer with ChatML specials and template, whose tokens are the words of the texts and of the almanac.

    Any other text is bytes. Tags are not special tokens: decoding keeps them, as it keeps Qwen3's <think>.
    """
    whole = scaffold_tokens()
    specials = [PAD, START, END]
    words = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tags = re.compile("|".join(map(re.escape, [*whole, *specials])))
    known = {word for text in texts for part in tags.split(text) for word, _ in words.pre_tokenize_str(part)}
    known |= {space + name for name in (*FIRST_WORDS, *SECOND_WORDS) for space in ("", _SPACE)}
    known |= {"system", "user", "assistant", *(f"S_{number}" for number in range(1, 1 + SNIPPETS))}
    figures = (attribute for domain in DOMAINS for attribute in domain.attributes)
    known |= {str(value) for each in figures for value in range(each.low, each.high + 1, each.step)}
    vocabulary = {
        word: number
        for number, word in enumerate(
            dict.fromkeys([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet()), *sorted(known)])
        )
    }
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in specials])
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=False) for name in whole])
    made: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, model_max_length=max_tokens
    )
    made.chat_template = CHAT_TEMPLATE
    return made
