"""Models: how a unit of audio becomes a decision, and tokens become sound."""
