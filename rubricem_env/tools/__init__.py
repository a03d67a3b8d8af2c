"""The tools that the agent searches with, and the text that it sees of their results."""
