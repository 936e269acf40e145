"""Many signals to many jobs, whose pods are killed meanwhile."""
