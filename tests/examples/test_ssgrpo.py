"""The algorithm in one file runs on public names."""

import asyncio
import re
from pathlib import Path

import pytest

from examples import ssgrpo

pytestmark = pytest.mark.no_cover

EXAMPLES = Path(ssgrpo.__file__).parent
OWN_IMPORT = re.compile(r"^(?:from|import) ((?:rubricem_\w+|trainers|research|tests)\S*)", re.MULTILINE)


def test_a_step_reflects_and_trains(monkeypatch, capsys):
    async def unasked(*_):
        return 0.5

    # That held-out answers rise is what `make example-lane` shows.
    monkeypatch.setattr(ssgrpo, "evaluate", unasked)
    asyncio.run(ssgrpo.train(ssgrpo.read_arguments(["--steps", "2", "--questions", "1"])))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "before training",
        "step 1 (new)",
        "step 2 (new)",
        "after training",
    ]
    assert lines[2].endswith("2 lessons")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_imports_from_the_packages_that_a_user_has(path):
    modules = OWN_IMPORT.findall(path.read_text(encoding="utf-8"))
    assert modules
    assert [name for name in modules if not re.fullmatch(r"rubricem_(?:env|agent)(?:\.\w+)?", name)] == []
