"""The routes of the viewer's API, a file for each part of the page."""
