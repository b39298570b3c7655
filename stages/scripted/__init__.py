"""The scripted model: deterministic answers on a timetable, for tests and load. No weights."""
