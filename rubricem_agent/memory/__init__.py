"""What the agent remembers: the rubric bank, how it is searched, and how it is shown to a later attempt."""
