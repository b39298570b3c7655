"""Command-line values that several programs of this package take."""

import argparse


def positive(text: str) -> int:
    """Read a whole number above zero."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return value
