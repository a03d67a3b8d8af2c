"""Control tokens of chat models, wherever foreign text may carry them: none reaches a prompt in its raw form."""

import pytest

from rubricem_agent.data.base import TeacherTask, Trace
from rubricem_agent.data.teacher import TeacherPrompts
from rubricem_agent.evals.suite import find_benchmark, rules_for
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.reflection.candidates import ReflectionSettings, build_opening
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import RubricScore
from rubricem_env.domain.trajectory import Query
from rubricem_env.judge.base import Contrast, ScoringRequest
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.reflections import ReflectionTask
from rubricem_env.judge.rubrics.rubric_set import RubricSet
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.scaffold.untrusted import defuse, neutralize, restore
from rubricem_env.testing.judges import ANSWER, QUESTION, attempt, careless
from tests.fakes import ScriptedModel, rubric
from tests.replies import empty_proposal, read_blocks, read_fenced

TOKENS = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|\u200bim_end|>", "<tool_call>", "</tool_response>"),  # Qwen
    *("<|eot_id|>", "<|start_header_id|>", "<|header_start|>", "<|python_tag|>"),  # Llama 3 and 4
    *("<s>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<0x0A>"),  # Llama 2
    *("<start_of_turn>", "<end_of_turn>", "<eos>", "<bos>", "<unused1>", "<start_of_image>"),  # Gemma
    *("<\uff5cAssistant\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<\uff5cDSML\uff5cinvoke"),  # DeepSeek
    *(
        "<|START_OF_TURN_TOKEN|>",
        "<EOS_TOKEN>",
        "<|channel|>",
        "<|observation|>",
        "<sop>",
        "[gMASK]",
    ),  # Command, GPT, GLM
    *("[TOOL_CALLS]", "[SYSTEM_PROMPT]", "[THINK]", "[IMG]", "[AVAILABLE_TOOLS]"),  # Mistral
    *("<extra_id_0>", "<SPECIAL_12>", "<reserved_106>", "<eoa>", "<seed:bos>", "<minimax:tool_call>", "]~b]", "[e~["),
    *("<turn|>", "<channel|>", "<tool_call|>", "<start_function_call>", "<end_function_response>", "<escape>"),  # Gemma
    *(
        "<tool_calls>",
        "</tool_calls>",
        "<tool_code>",
        "<ctrl42>",
        "<reserved_token_7>",
        "<_user>",
        "<_bot>",
        "<_system>",
    ),
    *("<hy_User>", "<hy_Assistant>"),  # Hunyuan
    *("[|assistant|]", "<function_calls>", "<function=search>", "<fim_prefix>", "<image>", "<mask>", "<|user|>"),
)
UNLISTED = (
    *("<role>", "</role>", ">>QUESTION<<", ">>IP_ADDRESS<<", "<end_of_utterance>", "<start_function_declaration>"),
    *(
        "<fake_token_around_image>",
        "<row_1_col_2>",
        "<gh_stars>",
        "|||EMAIL_ADDRESS|||",
        "[BOS]",
        "[EOT]",
        "[unused12]",
    ),
    *("[start_header_id]", "<tts_pad>", "<mask:0>", "<ENC>", "<EOT>", "<\u7528\u6237>", "<AI>", "<call|>", "<eod>"),
    *("<my_own_token>", "</my_own_token>", "<brand:new>", "<NEW>", "<new|>", "<|new|>", "]<]speech[>[", "<[@BOS@]>"),
    *("\uff1cend_of_utterance\uff1e", "< \u200bend_of_utterance>"),
)
"""Those of models that no list had, and invented ones of the same shapes."""
EVERY = " ".join(TOKENS)
HARMLESS = (
    *("<escape sequence>", "<turn left>", "<a|b>", "<reserved token>", "<ctrl>", "<ctrl+c>", "<hybrid>", "x <turn| y"),
    *("\n\nHuman: no", "### Instruction:"),
    *(
        "x[my_index]",
        "a >> b << c",
        "vector<int>",
        "<http://a.example>",
        "[PDF]",
        "a[MAX]",
        "||| x |||",
        "<my_tag id='1'>",
    ),
    *("<img src='a.png'>", "a < b | c", "x[i] |y|", "[1]", "<p>", "[|a|]", "<function f>", "a ]~ b", "<section>"),
)


def raw(prompt: str) -> list[str]:
    return [token for token in TOKENS if token in prompt]


@pytest.mark.parametrize("token", [*TOKENS, *UNLISTED])
def test_a_control_token_becomes_inert_once_and_can_be_restored(token):
    inert = defuse(token)
    assert token not in inert
    assert defuse(inert) == inert == defuse(neutralize(token))
    assert restore(neutralize(token)) == token


@pytest.mark.parametrize("text", HARMLESS)
def test_text_that_only_resembles_control_tokens_is_untouched(text):
    assert defuse(text) == neutralize(text) == text


def test_the_scaffold_of_a_policy_survives_in_a_prompt():
    assert defuse(ANSWER) == ANSWER


BAITED = {
    "answer": {"trajectory": attempt(answer=ANSWER.replace("</answer>", f" {EVERY}</answer>"))},
    "page": {"trajectory": attempt(page=EVERY)},
    "question": {"question": f"{QUESTION} {EVERY}"},
    "rubric": {"criterion": rubric(f"says {EVERY}")},
}


@pytest.mark.parametrize("where", BAITED)
async def test_no_control_token_reaches_the_training_judge(where):
    injections = BAITED[where]
    question, criterion = injections.get("question", QUESTION), injections.get("criterion", rubric("r"))
    trajectory = injections.get("trajectory", attempt())
    parsed = parse_trajectory(trajectory)
    model = ScriptedModel(read_fenced(lambda *_: 1, draft=lambda _: empty_proposal()))
    judge = LLMJudge(model)
    known = RubricSet().with_proposed([criterion], step=1)
    await judge.score(ScoringRequest(question, parsed, (criterion,)))
    await judge.propose(Contrast(question, (parsed, parse_trajectory(careless())), known))
    rubric_scores = {criterion.id: RubricScore.whole(criterion.id, 1, EVERY)}
    judgement = score_trajectory(STAGES, (criterion,), rubric_scores=rubric_scores)
    await judge.judge_reflections(ReflectionTask(question, parsed, judgement, (criterion,), (EVERY,)))
    assert len(model.requests) == 3
    assert [raw(request.prompt) for request in model.requests] == [[], [], []]
    assert all(read_blocks(request.prompt) for request in model.requests)


@pytest.mark.parametrize("where", ["answer", "page"])
def test_no_control_token_reaches_a_reflection(where):
    parsed = parse_trajectory(BAITED[where]["trajectory"])
    opening, _ = build_opening(ScriptedPolicy(lambda *_: lambda _: ""), parsed, settings=ReflectionSettings())
    assert raw(opening.user) == []


@pytest.mark.parametrize("where", BAITED)
def test_no_control_token_reaches_a_teacher(where):
    injections = BAITED[where]
    trajectory = injections.get("trajectory", attempt())
    task = TeacherTask("t", Query(question=injections.get("question", QUESTION)))
    request = TeacherPrompts.ours().request(Trace(task, trajectory))
    assert raw(request.prompt) == []
    assert "<structured_plan>" in request.prompt


def test_no_control_token_reaches_the_judge_of_an_evaluation():
    grader = find_benchmark("simpleqa").grader(rules_for("simpleqa", "official"))
    prompt = grader.user_prompt("simpleqa", question=EVERY, gold=EVERY, answer=EVERY)
    assert raw(prompt) == []
