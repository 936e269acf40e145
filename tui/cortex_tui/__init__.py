"""The terminal UI of Cortex: what operators see and press.

A separate process on asyncio. It reads and writes through `cortex.store`, as the runtime does, so
that when two people decide the same thing exactly one wins. It does not import trio.

To add a screen: a `Frame` in `screens/` (`screens/jobs.py` is the example), its line in
`app.SCREENS`, its keys in `keys.KEYS`, its queries in `backend/`, its text in `render/`. The frame
and the app provide the top bar, the footer, the help, the palette, polling and actions. A screen
defines what it reads (`look`), what it shows (`body`, `paint`), and what its keys do (`action_…`).
"""
