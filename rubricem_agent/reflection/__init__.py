"""Reflections: what the policy writes about a judged attempt, how it is scored, and which one the bank keeps."""
