"""Schedules: cron in time zones, and what to do about an instant that is due."""
