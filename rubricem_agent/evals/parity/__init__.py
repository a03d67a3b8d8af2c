"""Replays recorded official verdicts through our scorers, for `rubricem parity`; no benchmark imports this package."""
