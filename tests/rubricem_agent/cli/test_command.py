"""Every command has the shared options and describes its own."""

import pytest
from typer.main import get_command

from rubricem_agent.cli.main import app


def leaves(command, path: tuple[str, ...] = ()):
    """Every command that does something, with the words that call it."""
    if hasattr(command, "commands"):
        for name in command.list_commands(None):
            yield from leaves(command.get_command(None, name), (*path, name))
    else:
        yield pytest.param(command, id=" ".join(path))


@pytest.mark.parametrize("command", list(leaves(get_command(app))))
def test_every_command_has_both_flags_and_a_help_text_for_each_parameter(command):
    options = {flag: option for option in command.params for flag in option.opts}
    assert options["--json"].is_flag
    assert options["--quiet"].is_flag
    assert options["-q"] is options["--quiet"]
    assert (command.help or "").strip().endswith((".", "first.", ")"))
    assert [option.name for option in command.params if not (getattr(option, "help", "") or "").strip()] == []
