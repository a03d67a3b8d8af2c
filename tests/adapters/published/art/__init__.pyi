from .trajectories import Trajectory as Trajectory
from .trajectories import TrajectoryGroup as TrajectoryGroup
from .types import MessagesAndChoices as MessagesAndChoices
