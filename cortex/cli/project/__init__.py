"""`cortex init`: writes a project that runs."""
