"""The live wire, `/v1/live/sessions`: what its client says and how its server answers."""
