"""Teacher data: traces written by a strong model or a script, filtered, normalised and turned into an SFT set."""
