"""The composition root: turns settings into objects, one file a noun. Only here may an import stand in a function."""
