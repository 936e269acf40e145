"""What every test run shares: the Hypothesis profile."""

from hypothesis import settings

# The blob reproduces a failing example anywhere: paste it as @reproduce_failure(…).
# No deadline: parallel workers share the cores, and a slow example is not a wrong one.
settings.register_profile("cortex", print_blob=True, deadline=None)
settings.load_profile("cortex")
