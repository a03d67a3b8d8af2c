"""Who answers: a policy in episodes, with or without memory; an expert of the almanac; answers from a file."""
