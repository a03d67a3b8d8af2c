"""The almanac: a seeded small world of facts whose every question carries its truth."""
