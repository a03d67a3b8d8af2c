from rubricem_agent.config.bank import BankConfig as BankConfig
from rubricem_agent.config.judge import JudgeConfig as JudgeConfig
from rubricem_agent.config.policy import PolicyConfig as PolicyConfig
from rubricem_agent.config.sections import read_mapping as read_mapping
from rubricem_agent.config.teacher import TeacherConfig as TeacherConfig
from rubricem_agent.config.tools import (
    ToolsConfig as ToolsConfig,
    load_tools_config as load_tools_config,
    parse_tools as parse_tools,
    read_tools_config as read_tools_config,
)
