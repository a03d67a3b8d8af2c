"""`rubricem ask --reuse` with a real bank on disk: the lessons in the prompt, and the message where there are none."""

import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("chromadb", reason="the extra `bank` is not installed")

from rubricem_agent.cli.ask import ask
from rubricem_agent.config.bank import BankConfig
from rubricem_agent.memory.snapshot import save_snapshot
from rubricem_agent.wiring.memory import build_bank, open_existing_bank
from rubricem_env.domain.errors import UsageError
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer
from tests.fakes import make_reflection

QUESTION = "How wide is the river Tall Fox?"
OTHER = "How wide is the river Amber Badger?"
ANSWER = "<think>t</think><answer>60 m</answer>"
OWN_LESSON = "Look for the reporting convention before the figure is stated."
OTHER_LESSON = "Compare the editions of the almanac before a width is given."


@pytest.fixture
def bank(tmp_path):
    """Fills a bank on disk with lessons of given questions, and closes it."""

    def fill(lessons):
        opened = build_bank(BankConfig(folder=tmp_path / "bank", embedder="hashing"))
        for question, lesson in lessons.items():
            opened.write(make_reflection(question, takeaways=lesson))
        return tmp_path / "bank"

    return fill


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Asks a served model; gives the user message that it was sent, and what was printed."""
    monkeypatch.delenv("RUBRICEM_BANK", raising=False)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(ask)

    def run(*arguments):
        server = ModelServer(lambda request: ModelReply(ANSWER))
        with serve_loopback(server) as url:
            policy = ["--policy", f"openai:m@{url}/v1", "--no-probe", "--out", str(tmp_path / "out")]
            result = CliRunner().invoke(app, [QUESTION, *policy, *arguments])
        if isinstance(result.exception, UsageError):
            raise result.exception
        return server.asked[0].body["messages"][1]["content"], result.output

    return run


@pytest.mark.parametrize(
    ("mode", "shown", "hidden"), [("within", OWN_LESSON, OTHER_LESSON), ("cross", OTHER_LESSON, OWN_LESSON)]
)
def test_within_begins_with_the_questions_own_lesson_cross_with_others_and_neither_without_reuse(
    bank, asked, mode, shown, hidden
):
    folder = bank({QUESTION: OWN_LESSON, OTHER: OTHER_LESSON})
    message, output = asked("--reuse", mode, "--bank", str(folder))
    assert shown in message
    assert hidden not in message
    assert message.index(shown) < message.index(QUESTION)
    assert "1 lesson from the bank." in output
    message, output = asked("--bank", str(folder))
    assert "<reference_examples>" not in message
    assert "lesson" not in output


@pytest.mark.parametrize(
    ("lessons", "mode", "said"),
    [
        ({}, "cross", "No lesson from the bank: it is empty."),
        ({OTHER: OTHER_LESSON}, "within", "No lesson from the bank: none of its 1 is of this question."),
        ({QUESTION: OWN_LESSON}, "cross", "none of its 1 is of another question; what is nearly the same is left out"),
    ],
)
def test_a_bank_without_a_fitting_lesson_is_said_and_the_question_stands_alone(bank, asked, lessons, mode, said):
    message, output = asked("--reuse", mode, "--bank", str(bank(lessons)))
    assert said in output
    assert "<reference_examples>" not in message


@pytest.mark.parametrize("mode", ["within", "cross"])
def test_a_bank_that_is_not_there_is_named_and_none_is_made(asked, tmp_path, mode):
    with pytest.raises(UsageError, match=r"there is no rubric bank in .*rubricem bank import"):
        asked("--reuse", mode, "--bank", str(tmp_path / "typo"))
    assert not (tmp_path / "typo").exists()


def test_the_bank_of_a_checkpoint_gives_its_lessons_and_stays_as_it_is(asked, bank, tmp_path):
    snapshot = tmp_path / "bank.npz"
    save_snapshot(open_existing_bank(bank({QUESTION: OWN_LESSON}), embeds=True), snapshot, step=1)
    before = snapshot.read_bytes()
    message, _ = asked("--bank", str(snapshot), "--reuse", "within")
    assert OWN_LESSON in message
    assert snapshot.read_bytes() == before
