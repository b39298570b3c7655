"""What is written and kept of what happened: log lines and the stories of sessions."""
