"""`rubricem credit`: its contract, its table, and one sentence for every bad file."""

import json

import pytest
import typer
from typer.testing import CliRunner

from rubricem_agent.cli.credit import credit
from rubricem_agent.cli.credit_file import parse_credit_request, read_credit_file
from rubricem_env.domain.errors import FileFormatError

app = typer.Typer()
app.command()(credit)


def run(tmp_path, content, *options):
    file = tmp_path / "group.json"
    file.write_text(json.dumps(content))
    return CliRunner().invoke(app, [str(file), *options])


def test_json_holds_returns_and_advantages_and_nothing_else(tmp_path):
    result = run(tmp_path, {"scores": [[1, 1, 1, 1], [0, 0, 0, 0]]}, "--json")
    answer = json.loads(result.stdout)
    assert list(answer) == ["returns", "advantages"]
    assert answer["returns"] == [pytest.approx([2.8, 2.2, 1.8, 1.0]), [0.0] * 4]
    assert answer["advantages"][1] == pytest.approx([-1.0] * 4)


def test_matrix_mask_and_mode_are_obeyed(tmp_path):
    eye = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    scores = [[0.5, 0.25, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]
    result = run(tmp_path, {"scores": scores, "matrix": eye, "valid": [True, True, False]}, "--json")
    assert json.loads(result.stdout)["returns"][0] == [0.5, 0.25, 0.0, 1.0]
    assert json.loads(result.stdout)["advantages"][2] == [0.0] * 4
    result = run(tmp_path, {"scores": scores, "mode": "answer_only"}, "--json")
    assert json.loads(result.stdout)["returns"][0] == [1.0] * 4


def test_the_table_shows_each_rollout_and_which_is_masked(tmp_path):
    shown = run(tmp_path, {"scores": [[1] * 4, [0] * 4, [0] * 4], "valid": [True, True, False]}).stdout
    assert "2.800  +1.000" in shown
    assert "masked" in shown


def test_a_group_too_small_to_compare_is_said_beside_the_answer(tmp_path):
    result = run(tmp_path, {"scores": [[1, 1, 1, 1]]}, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["advantages"] == [[0.0] * 4]
    assert "1 of its rollouts are valid" in result.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not JSON: "),
        ("[1]", "a credit file is a JSON object with the keys scores, valid, matrix, mode."),
        ("{}", "no scores; give"),
        ('{"scores": []}', "no scores; give"),
        ('{"scores": 3}', "scores must have a row for each rollout"),
        ('{"scores": "3"}', "scores must be rows of numbers"),
        ('{"scores": {"a": 1}}', "scores must be rows of numbers"),
        ('{"scores": [0.5]}', "scores must have a row for each rollout and a column for each stage; its shape is 1"),
        ('{"scores": [[0,0,0,0], [0]]}', "scores must be rows of numbers, all of one length"),
        ('{"scores": [[0,0,0,0,0]]}', "each row of scores has 4 numbers: plan, research, review, answer"),
        ('{"scores": [[0,0,0,NaN]]}', "NaN stands where a number between 0 and 1 is needed"),
        ('{"scores": [[0,0,0,1e999]]}', "scores, rollout 1, stage 4 is inf; it must be a number between 0 and 1"),
        ('{"scores": [[0,2,0,0]]}', "scores, rollout 1, stage 2 is 2; it must be"),
        ('{"scores": [[true,0,0,0]]}', "each row of scores has 4 numbers"),
        ('{"scores": [[null,0,0,0]]}', "scores must be rows of numbers; null stands among them"),
        ('{"scores": [["' + "a" * 99 + '",0,0,0]]}', "scores must be rows of numbers; something else"),
        ('{"scores": [[1' + "0" * 400 + ",0,0,0]]}", "scores must be rows of numbers; something else"),
        ('{"scores": [[1' + "0" * 9000 + ",0,0,0]]}", "holds a number that is too long"),
        ("[" * 200_000, "nests too deeply"),
        ('{"score": [[0,0,0,0]]}', "unknown key 'score'; did you mean 'scores'?"),
        ('{"zzz": 1}', "unknown key 'zzz'; the keys are scores, valid, matrix, mode."),
        ('{"scores": [[0,0,0,0]], "scores": [[1,1,1,1]]}', "a key stands twice"),
        ('{"scores": [[0,0,0,0]], "mode": "stage"}', "mode is 'stage'; it is 'stages' or 'answer_only'"),
        ('{"scores": [[0,0,0,0]], "valid": [1]}', "valid needs one true or false for each of the 1 rollouts"),
        ('{"scores": [[0,0,0,0]], "valid": [true, true]}', "valid needs one true or false for each of the 1 rollouts"),
        ('{"scores": [[0,0,0,0]], "matrix": [[1,0,0,0]]}', "the stage matrix must be 4 x 4"),
        ('{"scores": [[0,0,0,0]], "matrix": [[1,0]]}', "the stage matrix must be 4 x 4"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(text, sentence):
    with pytest.raises(FileFormatError) as refusal:
        parse_credit_request(text)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileFormatError, match=r"No such file or directory: .*absent.json"):
        read_credit_file(tmp_path / "absent.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match=r"cannot read .*binary.json: .*utf-8"):
        read_credit_file(tmp_path / "binary.json")
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"empty.json: no scores"):
        read_credit_file(tmp_path / "empty.json")
