"""Several pods in one process, on a clock that jumps, with real Postgres.

A seed decides everything: what the jobs are to do, what happens to the pods, how long each packet
travels, which of several trio tasks goes first. What a seed did once it does again, bit for bit:

clock.py       time that passes only while everybody waits; who gets a turn
island.py      asyncio on that clock: it takes the place of trio-asyncio
wire.py        the way out of it: one statement at a time is really sent, and no time passes
sessions.py    real sessions of Postgres, each lent to one connection after another
connection.py  connections that lose requests and replies
notices.py     notifications of Postgres, handed out at instants that the seed decides
server.py      the real Postgres, whose `cortex.now()` is that clock
host.py        what the others use of the whole and of their machine, as protocols
machine.py     where one pod runs: killed, stopped, cut off
world.py       all of one seed, from its beginning to its judgement

The pods are `cortex.runtime.pod.run_pod` with the settings of production.
"""
