"""What a run will need, before it starts: memory, calls, money, hours, and what is missing for it."""
