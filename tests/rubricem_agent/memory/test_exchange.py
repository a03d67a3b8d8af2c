"""Banks as files: out, in again through the gate, and what a broken file says."""

import pytest

from rubricem_agent.memory.snapshot import export_items, import_items
from rubricem_env.domain.errors import FileFormatError
from tests.fakes import make_reflection


def test_what_is_exported_can_be_imported(bank, tmp_path):
    for degrees in (0, 50):
        bank.write(make_reflection(f"at {degrees}"))
    before = [item.reflection for item in bank.items()]
    assert export_items(bank.items(), tmp_path / "out.jsonl") == 2
    bank.restore(())
    written, _refused = import_items(bank, tmp_path / "out.jsonl")
    assert [item.reflection for item in written] == before


def test_removed_quarantined_and_superseded_items_stay_behind(bank, tmp_path):
    for degrees in (0, 20, 40, 40):
        bank.write(make_reflection(f"at {degrees}", takeaways=f"text {len(bank.items())}"))
    bank.change(1, "removed", "")
    bank.change(2, "quarantined", "")
    assert export_items(bank.items(), tmp_path / "out.jsonl") == 1


def test_lessons_on_probation_are_exported_where_they_are_asked_for(bank, tmp_path):
    for degrees in (0, 50):
        bank.write(make_reflection(f"at {degrees}"))
    bank.change(1, "probation", "")
    assert export_items(bank.items(), tmp_path / "out.jsonl") == 1
    assert export_items(bank.items(), tmp_path / "out.jsonl", with_probation=True) == 2


def test_a_refused_line_is_named_and_the_others_are_written(bank, tmp_path):
    rows = [make_reflection("at 0", takeaways="see www.evil.example"), make_reflection("at 9")]
    (tmp_path / "in.jsonl").write_text("\n".join(row.model_dump_json() for row in rows))
    written, refused = import_items(bank, tmp_path / "in.jsonl")
    assert [(line, refusal.code) for line, refusal in refused] == [(1, "address")]
    assert len(written) == 1


GOOD = make_reflection("at 0").model_dump_json()
FORGED = make_reflection("at 0").model_copy(update={"query_key": "00"}).model_dump_json()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *((line, " is not a reflection") for line in ("{", "[]", '{"question": "at 0"}', "NaN", GOOD[:40])),
        (FORGED, ": query_key is not the hash of the question"),
    ],
)
def test_a_broken_line_is_named_and_nothing_is_written(bank, tmp_path, line, said):
    (tmp_path / "in.jsonl").write_text(f"{GOOD}\n\n{line}")
    with pytest.raises(FileFormatError, match=rf"in\.jsonl, line 3{said}"):
        import_items(bank, tmp_path / "in.jsonl")
    with pytest.raises(FileFormatError, match=r"cannot read .*none\.jsonl"):
        import_items(bank, tmp_path / "none.jsonl")
    assert bank.items() == ()
