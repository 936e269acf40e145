"""`cortex up` and `cortex demo`: starting pods."""
