"""The page of a run: whole, escaped, without script, from the first line of the log on."""

import json
from html.parser import HTMLParser

import pytest

from rubricem_agent.viewer.run_report import read_run, render_run
from rubricem_env.domain.errors import FileFormatError

STAGES = ("plan", "research", "review", "answer")
SETTINGS = {"credit": "stages", "meta_policy": True, "steps": 12, "seed": 3, "system": "</pre><script>x</script>"}


def step(number, **more):
    scores = dict.fromkeys(STAGES, 0.5)
    told = {stage: {"tokens": 10, "entropy": 0.3, "kl": 0.01, "loss_share": 0.25} for stage in STAGES}
    return {
        "step": number,
        "encounter": "new",
        "true": scores,
        "judged": {**scores, "review": None},
        "task": {"loss": 0.1, "grad_norm": 1.0, "tokens": 40, "stages": told},
        "utility": 0.5,
        "bank": number,
        "habits": {"answer_words": 40.0, "repeated_calls": 0.0, "valid": 1.0, "policy_tokens": 100},
        "gradients": {"cosine": 0.2, "task_norm": 1.0, "reflection_norm": 1.0},
        "seconds": {"sample": 30.0, "reflect": 2.0, "update": 8.0},
        **more,
    }


def exam(number, answer):
    return {"step": number, "held_out": {**dict.fromkeys(STAGES, 0.5), "answer": answer}, "valid": 0.9}


def write(folder, *lines, settings=SETTINGS):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if settings is not None:
        (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


class Tags(HTMLParser):
    """Every tag of a page, and what its attributes point to."""

    def __init__(self):
        super().__init__()
        self.tags = set()
        self.links = []
        self.depth = 0

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]


def page_of(folder):
    return render_run(read_run(folder))


def test_the_page_is_one_file_without_script_or_link(tmp_path):
    tags = Tags()

    tags.feed(page_of(write(tmp_path, exam(0, 0.4), step(1), step(2), exam(2, 0.6))))

    assert {"svg", "table"} & tags.tags == {"svg"}
    assert "script" not in tags.tags
    assert tags.links == []


def test_what_the_settings_hold_is_shown_as_text(tmp_path):
    page = page_of(write(tmp_path, step(1)))

    assert "&lt;/pre&gt;&lt;script&gt;x" in page


def test_the_page_names_the_recipe_and_the_change(tmp_path):
    page = page_of(write(tmp_path, exam(0, 0.4), step(1), step(2), exam(2, 0.6)))

    assert "<h1>SS-GRPO + meta-policy</h1>" in page
    assert "2 of 12 steps, seed 3" in page
    assert "0.400 → 0.600" in page
    # Two steps of 30 + 2 + 8 seconds.
    assert "1 min 20 s" in page


def test_alarms_stand_at_the_top_as_text(tmp_path):
    alarms = [{"step": 2, "alarm": "judge & truth part"}, {"step": 2, "alarm": "answers are shrinking"}]

    page = page_of(write(tmp_path, step(1), step(2), *alarms))

    assert page.count('class="alarm"') == 2
    assert "judge &amp; truth part" in page
    assert page.index("answers are shrinking") < page.index("<svg")


def test_a_run_with_nothing_but_its_first_examination_has_a_page(tmp_path):
    page = page_of(write(tmp_path, exam(0, 0.4), settings=None))

    assert "not measured in this run" in page
    assert "A training run" in page


def test_an_old_log_without_habits_has_a_page(tmp_path):
    line = step(1)
    del line["habits"], line["gradients"]

    assert "<svg" in page_of(write(tmp_path, line))


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="it is no run's folder"):
        read_run(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_damaged_settings_are_refused(tmp_path, text):
    write(tmp_path, step(1), settings=None)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")

    with pytest.raises(FileFormatError, match=r"config\.json .* Start the run's command again"):
        read_run(tmp_path)
