"""The protocols of chat servers."""
