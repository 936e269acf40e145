"""The terminal UI of Cortex: what operators see and press.

A process of its own on asyncio. It reads and acts through `cortex.store`, as the runtime does, so
that of two people who decide one thing exactly one wins. It imports no trio.

To add a screen: a `Frame` in `screens/` (`screens/jobs.py` is the example), its line in
`app.SCREENS`, its keys in `keys.KEYS`, its reading in `backend/`, its words in `render/`. The top
bar, the footer, the help, the palette, looking again and again, and acting are the frame's and the
app's: a screen says what it looks at (`look`), what it shows (`body`, `paint`), and what its keys
do (`action_…`).
"""
