"""Public fakes and scripted parts: what a test or a demo needs instead of a model, a key or a network."""
