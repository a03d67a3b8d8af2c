"""The viewer over HTTP: the guard before everything, one file of routes for each noun."""
