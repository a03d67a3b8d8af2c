"""Official judge prompts are read from the user's checkout, known by hash, and filled by their own rules."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS, DrbGold, TaskCriteria
from rubricem_agent.evals.benchmarks.researchqa import ResearchQAGold
from rubricem_agent.evals.benchmarks.simpleqa import SimpleQAGold
from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.extraction import Extracted
from rubricem_agent.evals.grading import Case
from rubricem_agent.evals.official_prompts import SOURCES, PromptSource, read_official
from rubricem_agent.evals.suite import SUITE, rules_for
from rubricem_env.domain.errors import ConfigError, FileFormatError, UsageError

FORMAT = '''"""An invented scorer."""
import a_library_that_is_not_installed

TEMPLATE = """
Grade {{"so"}}: {question} with {target} or {target} for {predicted_answer}.
""".strip()
SYSTEM = "Be kind."
'''


def source(text_hash: str = "", rule: str = "format", **changes: object) -> PromptSource:
    given = {"repository": "some/one", "files": ("scorer.py",), "name": "TEMPLATE", "sha256": text_hash, "rule": rule}
    return PromptSource(**{**given, **changes})


def checkout(folder: Path, text: str = FORMAT, name: str = "scorer.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder


def read(folder: Path, one: PromptSource, key: str = "simpleqa"):
    return read_official(str(folder), [key], sources={key: one})[key]


def test_a_format_template_is_filled_by_its_own_names_and_braces_in_the_values_stay(tmp_path):
    template = read(checkout(tmp_path), source(names={"target": "gold", "predicted_answer": "answer"}))

    filled = template.fill({"question": "q {target}", "gold": "g", "answer": "a}{", "unused": "u"})

    assert filled == 'Grade {"so"}: q {target} with g or g for a}{.'


def test_an_angle_template_is_filled_in_one_pass(tmp_path):
    text = 'TEMPLATE = """# <<talk>>\n{"met": <<item>>}"""'

    filled = read(checkout(tmp_path, text), source(rule="angles")).fill({"talk": "say <<item>>", "item": "it"})

    assert filled == '# say <<item>>\n{"met": it}'


def test_an_f_string_in_a_function_is_a_template_with_its_expressions_as_names(tmp_path):
    text = (
        "def build(response, items):\n"
        '    TEMPLATE = ("Judge {all} of it.\\n" f"R: {response}\\n" "Q:\\n" + "\\n".join(items) + "\\n\\nOutput:")\n'
        "    return TEMPLATE\n"
    )
    one = source(names={"response": "answer", "'\\n'.join(items)": "items"})

    filled = read(checkout(tmp_path, text), one).fill({"answer": "x", "items": "a\nb"})

    assert filled == "Judge {all} of it.\nR: x\nQ:\na\nb\n\nOutput:"


def test_a_file_without_a_variable_is_the_prompt_and_a_plain_one_keeps_its_braces(tmp_path):
    checkout(tmp_path, "Be {kind}.\n", "system.txt")

    template = read(tmp_path, source(files=("system.txt",), name="", rule="plain"))

    assert template.fill({}) == "Be {kind}.\n"


def test_another_text_than_the_known_one_is_refused(tmp_path):
    known = read(checkout(tmp_path), source()).sha256
    assert read(tmp_path, source(known[:16])).sha256 == known

    checkout(tmp_path, FORMAT.replace("Grade", "Rate"))

    with pytest.raises(UsageError, match=r"scorer\.py does not hold the official prompt TEMPLATE of some/one"):
        read(tmp_path, source(known[:16]))


def test_what_is_outside_the_prompt_may_change(tmp_path):
    known = read(checkout(tmp_path), source()).sha256

    checkout(tmp_path, FORMAT.replace("kind", "quick"))

    assert read(tmp_path, source(known)).sha256 == known


def test_several_checkouts_may_stand_in_one_folder_and_the_known_version_is_taken(tmp_path):
    checkout(tmp_path / "b", FORMAT)
    known = read(tmp_path / "b", source()).sha256
    checkout(tmp_path / "a", FORMAT.replace("Grade", "Rate"))

    assert read(tmp_path, source(known)).sha256 == known


def test_an_installed_package_is_read_without_running_it(tmp_path, monkeypatch):
    checkout(tmp_path / "invented_scorer_of_tests", "raise SystemExit(1)", "__init__.py")
    checkout(tmp_path / "invented_scorer_of_tests")
    monkeypatch.syspath_prepend(str(tmp_path))

    template = read_official("invented_scorer_of_tests", ["x"], sources={"x": source()})["x"]

    assert template.pieces[0][0].startswith("Grade")


def test_a_missing_prompt_names_the_repository_and_the_way_out(tmp_path):
    with pytest.raises(
        UsageError, match=r"has no scorer\.py, where the official prompt TEMPLATE of some/one is\. Give"
    ):
        read(tmp_path, source())
    with pytest.raises(ConfigError, match="neither a folder nor an installed package"):
        read_official("no-such-place", ["simpleqa"])
    with pytest.raises(ConfigError, match="deepsearchqa cannot be checked by this release"):
        read_official(str(tmp_path), ["deepsearchqa"])


def test_a_file_that_is_not_python_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(FileFormatError, match="is not Python"):
        read(checkout(tmp_path, "TEMPLATE = ("), source())


def test_every_known_source_belongs_to_a_prompt_of_ours_and_is_known_by_hash():
    prompts = {
        name
        for benchmark in SUITE.values()
        for rules in (benchmark.official, benchmark.drtulu)
        for make in (benchmark.grader, benchmark.fact_grader)
        if rules and make
        for name in make(rules).prompts
    }

    assert {key.partition(".")[0] for key in SOURCES} == prompts - {"deepsearchqa"}
    assert all(len(one.sha256) == 16 for one in SOURCES.values())


CASE = Case(
    Example(id="0", prompt_text="Q?"),
    SimpleQAGold(id="0", problem="Q?", answer="G", metadata=""),
    Extracted("A <|im_end|>", "x"),
)


def asked(name: str, case: Case, templates) -> list:
    grader = replace(SUITE[name].grader(rules_for(name, "official")), official=templates)
    return list(next(grader.grade(case)))


def test_the_judge_is_asked_in_the_official_words_with_the_official_system_message(tmp_path):
    sources = {
        "simpleqa": source(names={"target": "gold", "predicted_answer": "answer"}),
        "simpleqa.system": source(name="SYSTEM", rule="plain"),
    }
    templates = read_official(str(checkout(tmp_path)), ["simpleqa"], sources=sources)

    (question,) = asked("simpleqa", CASE, templates)

    assert question.system == "Be kind."
    assert question.prompt.startswith('Grade {"so"}: Q? with G or G for A ')
    # The one departure: control tokens of chat templates stay inert.
    assert "<|im_end|>" not in question.prompt


def test_our_own_prompt_of_simpleqa_has_no_system_message():
    (question,) = asked("simpleqa", CASE, {})

    assert question.system == ""


def test_items_are_not_numbered_in_the_official_prompt_of_researchqa(tmp_path):
    text = 'def f(r, q):\n    TEMPLATE = f"{response}|" + "\\n".join(questions) + "|"\n'
    one = source(names={"response": "answer", "'\\n'.join(questions)": "items"})
    templates = {"researchqa": read(checkout(tmp_path, text), one, "researchqa")}
    gold = ResearchQAGold(id="1", query="Q?", rubric=("one", "two"))

    (question,) = asked("researchqa", CASE._replace(gold=gold), templates)

    assert question.prompt.endswith("|one\ntwo|")


def test_race_is_asked_in_the_language_of_the_task_with_criteria_as_json(tmp_path):
    checkout(tmp_path, 'TEMPLATE = "zh {article}"', "zh.py")
    checkout(tmp_path, 'TEMPLATE = "en {criteria_list}"', "race.py")
    sources = {
        "drb_clean.zh": source(files=("zh.py",)),
        "drb_race.zh": source(files=("race.py",), names={"criteria_list": "criteria"}),
    }
    templates = read_official(str(tmp_path), ["drb_clean", "drb_race"], sources=sources)
    item = '{"criterion": "条", "weight": 1, "explanation": "明"}'
    criteria = TaskCriteria.model_validate_json(
        '{"id": 1, "dimension_weight": {}, "criterions": {"insight": [' + item + ', {"criterion": "c", "weight": 0}]}}'
    )
    gold = DrbGold(id="1", prompt="t", language="zh", criteria=criteria, reference="r")
    grading = replace(SUITE["drb"].grader(rules_for("drb", "official")), official=templates).grade(
        CASE._replace(gold=gold)
    )

    (clean,) = next(grading)
    (race,) = grading.send((("x" * 100,),))

    assert clean.prompt.startswith("zh A ")
    # Without weights, and without the item that has no explanation, as the official driver writes them.
    assert race.prompt == (
        'en {\n  "insight": [\n    {\n      "criterion": "条",\n      "explanation": "明"\n    }\n  ]\n}'
    )
    assert "insight" in DIMENSIONS


@pytest.mark.skipif("RUBRICEM_OFFICIAL_PROMPTS" not in os.environ, reason="names no folder of official checkouts")
def test_the_official_checkouts_hold_the_known_texts():
    prompts = {key.partition(".")[0] for key in SOURCES}

    assert read_official(os.environ["RUBRICEM_OFFICIAL_PROMPTS"], sorted(prompts)).keys() == SOURCES.keys()
