"""How each benchmark grades an answer: what is asked of the judge, what its replies mean, what the examples add up to."""
