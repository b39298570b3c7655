"""Projections of the kernel's events to a wire: names, shapes, and which events are shown."""
