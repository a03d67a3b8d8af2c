from .base import GymnasiumServer as GymnasiumServer
from .base import extract_text as extract_text
