"""Widgets: they draw the lines that `render` makes, and turn keys into messages."""
