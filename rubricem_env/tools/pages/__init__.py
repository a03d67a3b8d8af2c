"""The text of web pages: fetched, parsed in processes with limits, or read by a service."""
