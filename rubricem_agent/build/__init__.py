"""The composition root: turns settings into objects. Only here may an import stand inside a function."""
