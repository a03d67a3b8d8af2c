"""The environment as other RL libraries ask for it; each module needs its library and is imported by nobody here."""
