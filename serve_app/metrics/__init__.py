"""What the service counts, and how it reaches whoever watches."""
