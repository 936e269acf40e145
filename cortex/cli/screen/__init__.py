"""What the command line writes: tables, live lines and logs."""
