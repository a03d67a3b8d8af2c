"""Language models as services: one chat protocol, retries, limits, usage and money, keys that stay secret."""
