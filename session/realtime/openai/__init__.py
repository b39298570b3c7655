"""The OpenAI Realtime wire: how its events are read, and the shapes of what it says."""
