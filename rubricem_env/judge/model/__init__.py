"""The judge that asks a chat model."""
