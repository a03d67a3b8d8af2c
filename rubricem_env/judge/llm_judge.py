"""The judge that asks a chat model (paper, section C)."""

from rubricem_env.judge.asking import Asker, AskSettings
from rubricem_env.judge.base import Contrast, Examination, Findings, Proposal
from rubricem_env.judge.llm_proposing import propose_rubrics
from rubricem_env.judge.llm_reflections import judge_reflections
from rubricem_env.judge.llm_scoring import ScoringPrompts, mark_trajectory
from rubricem_env.judge.prompts import Prompt, read_prompt
from rubricem_env.judge.reflecting import ReflectionFindings, ReflectionTask
from rubricem_env.llm.base import ChatModel
from rubricem_env.llm.retry import Timing


class LLMJudge:
    """Proposes rubrics, marks trajectories and judges reflections with one chat model."""

    def __init__(self, asker: Asker, *, propose: Prompt, scoring: ScoringPrompts, reflect: Prompt) -> None:
        self._asker = asker
        self._propose = propose
        self._scoring = scoring
        self._reflect = reflect

    @classmethod
    def over(cls, model: ChatModel, *, settings: AskSettings | None = None, timing: Timing | None = None) -> "LLMJudge":
        """A judge over the model, with the prompts that come with this package."""
        asker = Asker(model, settings or AskSettings(), timing or Timing.real())
        return cls(
            asker,
            propose=read_prompt("propose"),
            scoring=ScoringPrompts(read_prompt("score"), read_prompt("repair")),
            reflect=read_prompt("reflect"),
        )

    @property
    def name(self) -> str:
        return self._asker.model.name

    @property
    def prompt_hashes(self) -> dict[str, str]:
        """What to store beside results, so that a changed prompt shows."""
        return {"propose": self._propose.hash, "score": self._scoring.score.hash, "reflect": self._reflect.hash}

    async def propose(self, contrast: Contrast) -> Proposal:
        """One call for the whole group."""
        return await propose_rubrics(self._asker, self._propose, contrast=contrast)

    async def score(self, examination: Examination) -> Findings:
        """One call for one trajectory, with repair and fallback."""
        return await mark_trajectory(self._asker, self._scoring, examination=examination)

    async def judge_reflections(self, task: ReflectionTask) -> ReflectionFindings:
        """All candidates of one trajectory, in one call or one each as the task says."""
        return await judge_reflections(self._asker, self._reflect, task=task)
