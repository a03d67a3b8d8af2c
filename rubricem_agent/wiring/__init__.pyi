from rubricem_agent.wiring.evals import run_evaluation as run_evaluation
from rubricem_agent.wiring.memory import build_bank as build_bank, build_injector as build_injector
from rubricem_agent.wiring.models import build_judge as build_judge, build_policy as build_policy
from rubricem_agent.wiring.probe import model_probes as model_probes, require_answers as require_answers
from rubricem_agent.wiring.teacher_data import teach as teach
from rubricem_agent.wiring.tools import open_tools as open_tools, over_mcp as over_mcp
from rubricem_agent.wiring.training_questions import prepare as prepare
