"""Episodes with a policy: one, a group, many at once; what they were as text and as tokens, kept on disk."""
