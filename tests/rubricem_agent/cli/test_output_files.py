"""A file or a folder that cannot be written is one sentence before anything is asked."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.cli.output_files import open_out
from rubricem_env.domain.errors import ConfigError


@pytest.mark.parametrize("command", [("ask", "How wide is Tall Fox?"), ("data", "teach", "--limit", "1")])
def test_a_file_in_the_way_is_one_sentence_and_nothing_is_asked(tmp_path, command):
    (tmp_path / "file").write_text("x", encoding="utf-8")

    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "file")])

    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(f"cannot write to {tmp_path / 'file'}: File exists. Choose another folder")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x"


def test_a_folder_that_can_be_written_is_made_and_left_empty_and_any_other_is_named(tmp_path):
    open_out(tmp_path / "a" / "b")

    assert list((tmp_path / "a" / "b").iterdir()) == []
    # Root may write anywhere but here.
    with pytest.raises(ConfigError, match=r"cannot write to /proc: .*Choose another folder with --out"):
        open_out(Path("/proc"))
