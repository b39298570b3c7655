"""The default model that runs anywhere: voice detection, Whisper, rules and SmolLM2, hibari.

An honest cascade: it hears words, not tone, and decides when to speak by rules.
"""
