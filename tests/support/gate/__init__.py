"""The gates `.ci/quick` and `.ci/run`: what a change selects, and how a stage is run."""
