"""What acts: models behind one protocol, in text or in tokens, one conversation for each episode."""
