from rubricem_env.testing.episodes import (
    DEMO_QUERY as DEMO_QUERY,
    FOUND as FOUND,
    ScriptedResearcher as ScriptedResearcher,
    ScriptedTool as ScriptedTool,
    play_turns as play_turns,
    run_scripted_episode as run_scripted_episode,
    writes as writes,
)
from rubricem_env.testing.judges import (
    QUESTION as QUESTION,
    ScriptedJudge as ScriptedJudge,
    attempt as attempt,
    careless as careless,
)
from rubricem_env.testing.loopback import free_port as free_port, serve_loopback as serve_loopback
from rubricem_env.testing.servers import (
    ModelReply as ModelReply,
    ModelRequest as ModelRequest,
    ModelServer as ModelServer,
)
from rubricem_env.testing.tiny_model import tiny_qwen3 as tiny_qwen3, tiny_tokenizer as tiny_tokenizer
