"""The server of episodes: uvicorn server.app:app.

RUBRICEM_GROUP_SIZE is the number of attempts that are judged together; a trainer sets its own. RUBRICEM_TOKEN, if it is
set, is what clients must send.
"""

import os

import uvicorn

from rubricem_agent.prompting import agent_prompt
from rubricem_env.adapters import offline_env_spec, research_app
from rubricem_env.env import shipped_toolbox

RULES = agent_prompt(shipped_toolbox().names)

app = research_app(
    offline_env_spec(
        group_size=int(os.environ.get("RUBRICEM_GROUP_SIZE", "1")),
        patience=120.0,
        prompt=lambda query: RULES.opening(query).user,
        system=RULES.system,
    ),
    token=os.environ.get("RUBRICEM_TOKEN"),
)


def main() -> None:
    """Serve on port 8000, as openenv.yaml says."""
    uvicorn.run(app, host="0.0.0.0", port=8000)


if __name__ == "__main__":
    main()
