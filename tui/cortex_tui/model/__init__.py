"""The state of screens, as plain values and rules: no Textual, no database, no clock."""
