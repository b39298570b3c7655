"""What vLLM calls in each of its processes before it reads a config: our models' registration.

Named in pyproject.toml as the entry point `vllm.general_plugins`. It also runs in services that
never load a model of ours, so it imports nothing until vLLM is there to ask.
"""


def register() -> None:
    """Make our model classes known to vLLM; calling it again changes nothing."""
