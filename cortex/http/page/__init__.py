"""Pages for people in a browser: an approval, those that wait, and signing in.

A GET never decides anything. All of it works without scripts.
"""
