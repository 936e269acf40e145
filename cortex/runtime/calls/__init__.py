"""What stands around calls of jobs: breakers, budgets, effects, facts."""
