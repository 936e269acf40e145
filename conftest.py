"""What every test run shares: surroundings without the user's settings, the Hypothesis profile."""

from tests.support.surroundings import heed_signals, isolate

heed_signals()
isolate()  # first: some modules read the environment when they are imported

from hypothesis import settings  # noqa: E402

# No deadline: parallel workers share the cores, and a slow example is not a wrong one.
settings.register_profile("cortex", deadline=None, derandomize=True, max_examples=20)
# Other examples each time, for a change of the code under test: `--hypothesis-profile=thorough`.
# The blob reproduces a failing one anywhere: paste it as @reproduce_failure(…).
settings.register_profile("thorough", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("cortex")
