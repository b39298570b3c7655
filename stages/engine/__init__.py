"""One resumable vLLM request per session, for any model: its state stays between segments."""
