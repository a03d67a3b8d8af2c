from rubricem_viewer.report import render_report as render_report
from rubricem_viewer.run_folder import RunFolder as RunFolder
from rubricem_viewer.server import make_app as make_app
