"""The screens. Each is a `Frame`; `jobs` is the example."""
