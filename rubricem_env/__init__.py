"""The environment of RubricEM: scaffold, tools, judge and episodes of deep research."""
