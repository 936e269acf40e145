"""Chaos: kills, stops and cuts off real pods while they work, and judges what they did.

cluster/    what a run is made of: a database of its own, pods as processes, a proxy in front of
            Postgres, a scripted model, a ledger outside, a person who decides approvals
workloads/  what the pods run: random programs, made from the seed
nemeses/    the faults: one file each
history.py  what happened, as one file of JSON lines
checkers/   whether that was right: one file per invariant; shares no code with the runtime
report/     the scorecard, the page, the charts
points/     kills and stops a pod once at each named point of the code
sim/        several pods in one process on a virtual clock, with real Postgres
mutants/    deliberately broken runtimes, each of which the checkers must catch

The runtime does not know about chaos: the pods that are killed are the product, unchanged.
"""
