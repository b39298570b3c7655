"""The gateway: its sockets and its HTTP routes."""
