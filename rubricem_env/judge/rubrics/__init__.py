"""Rubrics of questions: the set of one question, the buffer of all, and what may enter."""
