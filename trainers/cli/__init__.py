"""Commands of the trainers for the command line `rubricem`."""
