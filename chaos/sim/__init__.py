"""Several pods in one process, on a virtual clock, with real Postgres.

A seed determines everything: what the jobs do, what happens to the pods, how long each packet
travels, which of several trio tasks runs first. A seed repeats bit for bit:

clock.py       time that passes only while every task waits; which task runs next
island.py      asyncio on that clock, instead of trio-asyncio
wire.py        the way out: sends one statement at a time, while no virtual time passes
sessions.py    real Postgres sessions, each lent to one connection after another
connection.py  connections that lose requests and replies
notices.py     Postgres notifications, delivered at times that the seed determines
server.py      the real Postgres, whose `cortex.now()` is that clock
host.py        what other parts use of the whole and of their machine, as protocols
machine.py     where one pod runs: killed, stopped, cut off
world.py       everything of one seed, from its start to its judgement

The pods are `cortex.runtime.pod.run_pod` with the settings of production.
"""
