"""Widgets: they draw lines that `render` makes, and turn keys into messages."""
