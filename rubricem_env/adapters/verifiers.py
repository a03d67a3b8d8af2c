"""A taskset for verifiers with the scores of the stages as named rewards, and a harness that plays its episodes here.

A plugin is a module of yours, found by its name on the path:

    MyTaskset, MyHarness = research_plugin(make_env_spec(scorer=...))
    __all__ = ["MyHarness", "MyTaskset"]
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from rubricem_env.adapters.session import require_tested, turn_rewards
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.episode import Continue, Finished
from rubricem_env.env.spec import EnvSpec
from rubricem_env.env.step import advance, step_info

require_tested("verifiers", ">=0.4,<0.5", extra="verifiers")

# After its version; the others come with it.
import httpx  # noqa: E402
import verifiers.v1 as vf  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from openai import AsyncOpenAI  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

TLS = httpx.create_ssl_context()
"""Shared by all episodes: reading the certificates takes as long as a third of an episode."""
TRAJECTORY = "rubricem_trajectory"
"""The key of a trace's `info` with the record of the episode."""


class ResearchData(vf.TaskData):  # type: ignore[misc,unused-ignore]  # verifiers is absent where types are checked
    """One question, by its key in the spec."""

    query_key: str


class ResearchTask(vf.Task[ResearchData, vf.State, vf.TaskConfig]):  # type: ignore[misc,unused-ignore]
    """Scores the finished episode, within its group if the spec's scorer gathers."""

    research: EnvSpec

    @vf.reward(weight=1.0)  # type: ignore[untyped-decorator,unused-ignore]
    async def stage_scores(self, trace: Any) -> dict[str, float]:
        """A reward for each stage that has a score; the trace's info gives the reason for a missing one.

        `info["turn_rewards"]` holds the same scores by turn: a number or None for each turn of the policy.
        """
        if TRAJECTORY not in trace.info or self.research.scorer is None:
            return {}
        trajectory = Trajectory.model_validate(trace.info[TRAJECTORY], strict=False)
        judgement = (await self.research.scorer.score([trajectory]))[0]
        trace.info["stage_outcomes"] = judgement.model_dump(mode="json")
        trace.info["turn_rewards"] = turn_rewards(trajectory, judgement)
        scores = {stage: judgement.score(stage) for stage in judgement.stages}
        return {name: score for name, score in scores.items() if score is not None}


class ResearchTaskset(vf.Taskset[ResearchTask, vf.TasksetConfig]):  # type: ignore[misc,unused-ignore]
    """The questions of a spec; subclass it and set `research`."""

    research: ClassVar[EnvSpec]

    def load(self) -> Iterable[ResearchTask]:
        """A task for each question, in their order."""
        for query in self.research.queries:
            prompts = {"prompt": self.research.prompt(query), "system_prompt": self.research.system or None}
            task = ResearchTask(ResearchData(query_key=query.key, **prompts), self.config.task)
            task.research = self.research
            yield task


class ResearchHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc,unused-ignore]
    """Plays the episode; every model call goes through the endpoint of verifiers."""

    research: ClassVar[EnvSpec]
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
    ) -> Any:
        """One episode in chat messages, each observation a user message. verifiers handles a model's failure.

        Where the episode folds, the messages begin again from the view: a new branch of the trace, and a training
        sample of its own.
        """
        system, prompt = self.resolve_text_prompt(data)
        query = self.research.query(data.query_key)
        episode = self.research.open_episode(query, prompt)
        opening = [{"role": "system", "content": system}] if system else []
        messages = list(opening)
        folds = 0
        reply: Continue | Finished = Continue(self.research.prompt(query) if prompt is None else prompt)
        http = httpx.AsyncClient(verify=TLS)
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, http_client=http) as client:
            while isinstance(reply, Continue):
                if len(episode.folds) > folds:
                    folds = len(episode.folds)
                    messages = [*opening, *episode.view.messages]
                else:
                    messages.append({"role": "user", "content": reply.observation})
                answer = await client.chat.completions.create(model=ctx.model, messages=messages)
                text = answer.choices[0].message.content
                if text is None:
                    raise UsageError(
                        "the model answered without text; this environment's tools are called in text, not natively."
                    )
                messages.append({"role": "assistant", "content": text})
                # Recorded after every turn: a limit of verifiers may end the rollout between two.
                reply = await advance(episode, self.research.toolbox, text)
                trace.info[TRAJECTORY] = episode.trajectory.model_dump(mode="json")
        trace.record_metrics({name: value for name, value in step_info(episode).items() if isinstance(value, int)})
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


def research_plugin(env_spec: EnvSpec) -> tuple[type[ResearchTaskset], type[ResearchHarness]]:
    """The two classes of a plugin over one spec; name them in a module and list the names in `__all__`."""
    fields = {"research": env_spec}
    return type("Taskset", (ResearchTaskset,), fields), type("Harness", (ResearchHarness,), fields)
