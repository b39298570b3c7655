"""Who may come in, and what each client may have."""
