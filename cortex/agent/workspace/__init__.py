"""The files that an agent may read and write, and what becomes of them."""
