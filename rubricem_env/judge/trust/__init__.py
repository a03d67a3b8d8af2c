"""How far a judge can be trusted."""
