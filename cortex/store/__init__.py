"""The store: every module that talks to Postgres, one per aggregate."""
