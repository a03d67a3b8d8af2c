"""The almanac's rivers in tables: questions that need a query, with their right number and the usual wrong ones."""
