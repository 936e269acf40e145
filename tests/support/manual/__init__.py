"""The manual as programs: every block of a page is run, compared, or says why it is not."""
