"""The figures of the concept pages; `make docs-figures` writes them, a test holds that they are up to date."""

from pathlib import Path

from drawing import Drawing

FOLDER = Path(__file__).parents[1] / "concepts" / "figures"
STAGES = ("plan", "research", "review", "answer")


def scaffold() -> Drawing:
    """The four stages, what each holds, and what the tools say between."""
    draw = Drawing("scaffold", "The four stages of an attempt and the tags that bound them", width=760, height=250)
    insides = (
        ("Plan", "<structured_plan>", ("deep_analysis", "rubric", "research_plan")),
        ("Research", "<call_tool>", ("state_evaluation", "revised plans", "up to ten searches")),
        ("Review", "<review>", ("rubric_review", "writing_plan", "")),
        ("Answer", "<answer>", ("claims in <cite>", "", "")),
    )
    for index, (name, tag, inside) in enumerate(insides):
        x = 10 + index * 190
        draw.box((x, 40), (170, 130), kind=name.lower())
        draw.text((x + 85, 64), name, style="bold", anchor="middle")
        draw.text((x + 85, 86), tag, style="code", anchor="middle")
        for number, line in enumerate(inside):
            draw.text((x + 85, 112 + number * 18), line, style="soft", anchor="middle")
        if index:
            draw.arrow((x - 20, 105), (x - 2, 105))
    draw.box((185, 200), (200, 36), "tool output, made inert")
    draw.arrow((260, 172), (260, 198))
    draw.arrow((310, 198), (310, 172))
    draw.text((10, 24), "one trajectory; its spans touch and never overlap", style="soft")
    draw.arrow((95, 172), (95, 190), (180, 190), (180, 150), (198, 150), dashed=True)
    draw.text((14, 208), "its rubric is carried on", style="soft")
    return draw


def episode() -> Drawing:
    """The loop that every driver runs."""
    draw = Drawing("episode", "The episode as a state machine between policy and tools", width=760, height=270)
    draw.box((10, 90), (150, 80), "Policy\nwrites one turn")
    draw.box((300, 70), (170, 120), "Episode\nno network, no clock\nlimits, stages,\ntrajectory", kind="plan")
    draw.box((600, 90), (150, 80), "Toolbox\nsearches")
    draw.arrow((162, 112), (298, 112), words="emit(text)")
    draw.arrow((298, 150), (162, 150), words="Continue(observation)", lift=-18)
    draw.arrow((472, 112), (598, 112), words="ToolCall")
    draw.arrow((598, 150), (472, 150), words="observe(result)", lift=-18)
    draw.arrow((385, 192), (385, 232), words="")
    draw.text((395, 218), "Finished: answered, or a limit", style="soft")
    draw.text((385, 254), "Trajectory", style="bold", anchor="middle")
    drivers = "Gymnasium step · vector env · run_groups · TRL · verifiers · SkyRL · OpenEnv · gem · veRL"
    draw.text((380, 26), drivers, style="soft", anchor="middle")
    draw.text((380, 46), "each runs the same loop", style="soft", anchor="middle")
    return draw


def judge() -> Drawing:
    """One question's rubrics over one step."""
    draw = Drawing("judge", "How the rubrics of one question evolve within a step", width=760, height=270)
    draw.box((10, 75), (150, 80), "8 attempts\nat one question")
    draw.box((210, 20), (160, 70), "Propose\nby contrast, by stage")
    draw.box((210, 130), (160, 60), "Score\neach attempt alone")
    draw.box((430, 65), (160, 100), "Rubric buffer\npersistent: answer only\nactive: 3, 2, 2, 3", kind="plan")
    draw.box((650, 65), (100, 100), "Archive\nwith the reason")
    draw.box((210, 220), (160, 44), "stage scores R", kind="answer")
    draw.arrow((162, 100), (208, 62))
    draw.arrow((162, 130), (208, 156))
    draw.arrow((372, 60), (428, 92))
    draw.arrow((428, 138), (372, 158))
    draw.arrow((290, 192), (290, 218))
    draw.arrow((592, 100), (648, 100), words="retire")
    draw.arrow((648, 140), (592, 140), dashed=True)
    draw.text((670, 190), "proposed again,", style="soft", anchor="middle")
    draw.text((670, 206), "it comes back", style="soft", anchor="middle")
    draw.text((290, 114), "new ones are used at once", style="soft", anchor="middle")
    return draw


def memory() -> Drawing:
    """From a judged attempt to the block before a question."""
    draw = Drawing("memory", "How an attempt becomes a lesson in the rubric bank", width=760, height=250)
    draw.box((4, 60), (136, 70), "Judged attempt\none of the group")
    draw.box((180, 60), (130, 70), "8 candidates\nthe policy's own")
    draw.box((350, 60), (130, 70), "Judge\nutility of each")
    draw.box((520, 60), (100, 70), "Gate\nforms only")
    draw.box((660, 50), (90, 90), "Rubric\nbank", kind="plan")
    for x in (142, 312, 482, 622):
        draw.arrow((x, 95), (x + 36, 95))
    draw.text((500, 52), "best valid one", style="soft", anchor="middle")
    draw.box((335, 180), (160, 44), "reflection reward", kind="review")
    draw.arrow((415, 132), (415, 178))
    draw.text((425, 160), "all of them", style="soft")
    draw.box((10, 180), (240, 50), "Next attempt\nreferences, then the question", kind="answer")
    draw.arrow((705, 142), (705, 240), (300, 240), (300, 205), (252, 205))
    draw.text((690, 212), "within: its own lesson", style="soft", anchor="end")
    draw.text((690, 228), "cross: two of similar questions", style="soft", anchor="end")
    return draw


def credit() -> Drawing:
    """Scores to returns through the matrix, then across the group."""
    draw = Drawing("credit", "A stage's return and its advantage over the group", width=760, height=300)
    draw.text((10, 22), "scores R of one rollout", style="soft")
    scores = ("1.0", "0.5", "0.0", "1.0")
    returns = ("2.0", "1.3", "0.8", "1.0")
    matrix = (("1", "0.4", "0.6", "0.8"), ("0", "1", "0.4", "0.8"), ("0", "0", "1", "0.8"), ("0", "0", "0", "1"))
    for index, (stage, score) in enumerate(zip(STAGES, scores, strict=True)):
        draw.box((10 + index * 72, 32), (66, 50), f"{score}\n{stage}", kind=stage)
    draw.text((330, 22), "matrix: what stage k (row) earns of stage j (column)", style="soft")
    for row, (stage, cells) in enumerate(zip(STAGES, matrix, strict=True)):
        draw.text((330, 62 + row * 34), stage, style="soft")
        for column, cell in enumerate(cells):
            draw.box((400 + column * 56, 40 + row * 34), (52, 32), cell, kind=stage if cell != "0" else "box")
    draw.text((10, 120), "returns G = R through the matrix", style="soft")
    for index, (stage, value) in enumerate(zip(STAGES, returns, strict=True)):
        draw.box((10 + index * 72, 130), (66, 50), f"{value}\n{stage}", kind=stage)
    draw.arrow((150, 84), (150, 108))
    draw.text((10, 218), "advantages A over the group, stage by stage", style="soft")
    for index, stage in enumerate(STAGES):
        draw.box((10 + index * 72, 228), (66, 50), f"+1\n{stage}", kind=stage)
    draw.arrow((150, 182), (150, 206))
    draw.text((330, 212), "every policy token of a stage has the stage's A;", style="soft")
    draw.text((330, 230), "prompt and tool tokens have none", style="soft")
    widths = ((40, "box", ""), (60, "plan", "plan"), (90, "research", "research"), (50, "box", "tool"))
    x = 330
    for width, kind, name in (*widths, (60, "research", ""), (60, "review", "review"), (60, "answer", "answer")):
        draw.box((x, 242), (width, 30), kind=kind)
        draw.text((x + width // 2, 262), name, style="soft", anchor="middle")
        x += width
    return draw


def meta_policy() -> Drawing:
    """Two phases and the lag between them."""
    draw = Drawing(
        "meta_policy", "Reflections are written behind step N and trained on in step N + 1", width=760, height=270
    )
    for step, x in (("step N", 120), ("step N + 1", 440)):
        draw.text((x + 150, 24), step, style="bold", anchor="middle")
        draw.box((x, 40), (120, 46), "rollouts", kind="research")
        draw.box((x + 126, 40), (70, 46), "judging", kind="review")
        draw.box((x + 202, 40), (100, 46), "launch")
        draw.box((x, 110), (120, 46), "Phase A\nreflections", kind="plan")
        draw.box((x + 126, 110), (70, 46), "Phase B\ntask", kind="answer")
    for y, name in ((68, "inference"), (138, "training"), (208, "behind both")):
        draw.text((10, y), name, style="soft")
    draw.box((300, 180), (220, 46), "reflect, judge, write")
    draw.arrow((372, 88), (372, 178), words="")
    draw.arrow((490, 178), (490, 158))
    draw.text((532, 206), "one step late", style="soft")
    draw.text(
        (120, 256), "questions: B1 B2 B3 new (lessons of others), then B1 B2 B3 again (their own lesson)", style="soft"
    )
    return draw


def almanac() -> Drawing:
    """A world from one integer."""
    draw = Drawing("almanac", "The almanac: a seeded world whose questions carry their truth", width=760, height=250)
    draw.box((10, 90), (90, 60), "seed")
    draw.box((140, 20), (184, 60), "Entities\n8 domains, relations")
    draw.box((140, 95), (184, 60), "Documents\neditions, rivals, dead ends")
    draw.box((140, 170), (184, 60), "Conventions\nunwritten duties")
    for y in (50, 125, 200):
        draw.arrow((102, 120), (138, y))
        draw.arrow((326, y), (378, 120))
    draw.box((380, 85), (140, 70), "Questions\nneeds, traps, truth", kind="plan")
    draw.box((580, 20), (170, 54), "Search tools\nwhat the agent sees", kind="research")
    draw.box((580, 96), (170, 54), "Judge\nwith four knobs", kind="review")
    draw.box((580, 172), (170, 54), "True quality\nno trainer reads it", kind="answer")
    draw.arrow((326, 112), (370, 60), (578, 47))
    draw.arrow((522, 118), (578, 123))
    draw.arrow((522, 130), (578, 198))
    draw.text((662, 90), "audited against", style="soft", anchor="middle")
    draw.arrow((662, 152), (662, 170), dashed=True)
    return draw


FIGURES = (scaffold, episode, judge, memory, credit, meta_policy, almanac)


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for figure in FIGURES:
        draw = figure()
        (FOLDER / f"{draw.name}.svg").write_text(draw.render(), encoding="utf-8")


if __name__ == "__main__":
    main()
