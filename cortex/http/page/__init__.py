"""Pages for people in a browser: one approval, the waiting ones, and signing in.

A GET never decides anything. All pages work without scripts.
"""
