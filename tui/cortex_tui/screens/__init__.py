"""The screens. Each is a `Frame`; `jobs` shows how one is made."""
