"""The items of a rubric bank."""
