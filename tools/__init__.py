"""Programs for people who work on this project. Nothing imports them at run time."""
