"""Traces: one for each unit, over the processes that it goes through."""
