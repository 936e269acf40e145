"""What every test run shares: surroundings without the user's settings, the Hypothesis profile."""

from tests.support.surroundings import isolate

isolate()  # first: some modules read the environment when they are imported

from hypothesis import settings  # noqa: E402

# The blob reproduces a failing example anywhere: paste it as @reproduce_failure(…).
# No deadline: parallel workers share the cores, and a slow example is not a wrong one.
settings.register_profile("cortex", print_blob=True, deadline=None)
settings.load_profile("cortex")
