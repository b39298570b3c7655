"""The wire's grammar: client texts become commands, events become server texts. No I/O here."""
