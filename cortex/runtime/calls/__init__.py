"""Services around the calls that jobs make: breakers, budgets, effects, facts."""
