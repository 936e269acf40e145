"""What screens know, as plain values and rules: no Textual, no database, no clock."""
