"""Runnable examples of the client library."""
