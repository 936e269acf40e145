"""Runtimes that are broken on purpose: each must break a rule, or the rules are worth nothing.

mutant.py     what a mutant is: patches of a copy of the tree, and the rule that they break
leases.py, effects.py, record.py, sessions.py, leaving.py
              the mutants, by what is broken; catalogue.py has them all
scenes.py     the short runs that expose them
everyday.py   what an ordinary run and the simulation alone see of a mutant
program.py    one program in a broken tree
trial.py      one scene, in the tree in which it stands: `python -m chaos.mutants.trial`
hunt.py       copies, patches and tries them, several at once
table.py      what came of that
"""
