"""Episodes and the environments that step them."""
