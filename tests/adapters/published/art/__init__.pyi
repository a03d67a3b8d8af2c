from .trajectories import Trajectory as Trajectory, TrajectoryGroup as TrajectoryGroup
from .types import MessagesAndChoices as MessagesAndChoices
