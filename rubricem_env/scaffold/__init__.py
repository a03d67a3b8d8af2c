"""The scaffold: which text is structure, what a turn does, where stages begin and end, and what breaks the rules."""
