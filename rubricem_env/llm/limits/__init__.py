"""Retries, hedging, rate limits and several servers."""
