"""Chaos: real pods are killed, stopped and cut off while they work, and what they did is judged.

cluster/    what a run is made of: a database of its own, pods as processes, a proxy in front of
            Postgres, a scripted model, a ledger outside, somebody who decides approvals
workloads/  what the pods are to do: random programs, made from the seed
nemeses/    what happens to them: one file a fault
history.py  what happened, in one file of JSON lines
checkers/   whether that was right: one file an invariant; no code is shared with the runtime
report/     the scorecard, the page, the lines
points/     killed and stopped once at each named point of the code
sim/        several pods in one process on a clock that jumps, with real Postgres
mutants/    deliberately broken runtimes, each of which the checkers must catch

The runtime knows nothing of it: what is killed here is the product as it is.
"""
