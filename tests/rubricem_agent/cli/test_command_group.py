"""Commands of installed packages: they stand beside ours, and a broken one takes nothing down."""

import sys

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_env.domain.errors import BoundaryError

CODE = '''
def greet(name: str) -> None:
    """Greet someone."""
    print(f"hello {name}")
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package with commands on the path: their entry points, and the code of its module `other_commands`."""

    def installed(*entry_points, code=CODE):
        folder = tmp_path / "other-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text("\n".join(["[rubricem.commands]", *entry_points]))
        (tmp_path / "other_commands.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)

    yield installed
    sys.modules.pop("other_commands", None)


def invoke(*words):
    return CliRunner().invoke(app, [*words])


def test_a_command_of_another_package_is_listed_after_ours_and_runs(install):
    install("greet = other_commands:greet")

    listed = invoke("--help")

    assert listed.stderr == ""
    assert listed.stdout.index("fine-tuning") < listed.stdout.index("Greet someone.")
    assert invoke("greet", "Ann").stdout == "hello Ann\n"


@pytest.mark.parametrize(
    ("entry_point", "code", "reason"),
    [
        ("other_commands:greet", "1 / 0", "ZeroDivisionError: division by zero"),
        ("other_commands:absent", CODE, "AttributeError: module 'other_commands' has no attribute 'absent'"),
        ("nowhere:greet", CODE, "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_command_that_does_not_load_is_a_sentence_with_its_package_and_the_others_stay(
    install, entry_point, code, reason
):
    install(f"greet = {entry_point}", code=code)

    listed, called = invoke("--help"), invoke("greet", "Ann")

    sentence = f"could not load the command 'greet' of the package other: {reason}"
    assert (listed.exit_code, listed.stderr) == (0, f"rubricem: {sentence}\n")
    assert "train-verl" in listed.stdout
    assert isinstance(called.exception, BoundaryError)
    assert str(called.exception) == sentence
    assert invoke("doctor", "--help").stderr == ""


@pytest.mark.parametrize("name", ["demo", "train"])
def test_a_command_of_ours_is_not_replaced(install, name):
    install(f"{name} = other_commands:greet")

    assert "Greet" not in invoke(name, "--help").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--quiet", "eval", "almanac"), "It stands behind the command, as in `rubricem doctor --quiet`"),
        (("--json", "doctor"), "It stands behind the command, as in `rubricem doctor --json`"),
        (("doctor", "now"), "Leave it out, or put a text of several words in quotation marks"),
        (("tools", "call", "google_search", "tall", "fox"), "put a text of several words in quotation marks"),
        (("--quite",), "No such option: --quite"),
    ],
)
def test_a_command_that_is_written_wrongly_is_refused_with_the_way_to_write_it(words, said):
    result = invoke(*words)

    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
