from rubricem_agent.viewer.report import render_report as render_report
from rubricem_agent.viewer.runs import RunFolder as RunFolder
from rubricem_agent.viewer.server import make_app as make_app
