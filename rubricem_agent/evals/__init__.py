"""The paper's benchmarks: official files read, judge replies parsed, scores computed as the official scorers do.

Nothing here asks a model or the network. `parity` replays recorded verdicts through the same functions.
"""
