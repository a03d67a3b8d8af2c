"""Settings as data: one file a noun, nothing here runs."""
