"""What the agent lends to other RL libraries: its credit, its way of playing, and all that a trainer asks for at once."""
