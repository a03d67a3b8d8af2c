"""Files that survive a killed process: atomic writes, lines, locks."""
