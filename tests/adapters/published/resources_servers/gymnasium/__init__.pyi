from .base import GymnasiumServer as GymnasiumServer, extract_text as extract_text
