"""TRL in three lines: an environment, its judge and the paper's credit, for a trainer of your own settings.

spec = research_spec()
trainer = StageGRPOTrainer(model, args=config, processing_class=tokenizer, **spec.trainer_arguments)
trainer.train()
"""

from collections.abc import Sequence

from rubricem_agent.adapters.credit import stage_advantages
from rubricem_agent.adapters.local_play import play_locally
from rubricem_agent.prompting import AgentPrompt, agent_prompt
from rubricem_env.adapters.session import offline_scorer
from rubricem_env.adapters.trl import TrlSpec
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.env.research_env import offline_queries, shipped_toolbox
from rubricem_env.env.rewards import Scorer
from rubricem_env.tools.base import Toolbox


def research_spec(
    *,
    queries: Sequence[Query] | None = None,
    toolbox: Toolbox | None = None,
    scorer: Scorer | None = None,
    prompt: AgentPrompt | None = None,
    limits: EpisodeLimits | None = None,
    max_turn_tokens: int = 2_048,
    rows: int = 16,
) -> TrlSpec:
    """A spec whose episodes are played in this process with the trainer's own Qwen3, and credited stage by stage.

    The defaults are the almanac, judged by rules, the agent's rules as prompt, and the paper's limits.
    """
    chosen = offline_queries() if queries is None else tuple(queries)
    tools = shipped_toolbox() if toolbox is None else toolbox
    play = play_locally(
        prompt or agent_prompt(tools.names),
        tools,
        limits=limits or EpisodeLimits(),
        max_turn_tokens=max_turn_tokens,
        rows=rows,
    )
    return TrlSpec(play=play, scorer=scorer or offline_scorer(chosen), advantages=stage_advantages, queries=chosen)
