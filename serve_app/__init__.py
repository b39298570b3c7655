"""Processes: sockets, Serve deployments, actors, tasks, clocks, and the page."""
