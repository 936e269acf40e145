"""Messages that announce changes, and who gets them."""
