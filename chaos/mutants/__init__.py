"""Deliberately broken runtimes: each must break a rule, or the checkers prove nothing.

mutant.py     a mutant: patches of a copy of the tree, and the rule that they break
leases.py, effects.py, record.py, sessions.py, leaving.py, background.py, queueing.py
              the mutants, by what is broken; catalogue.py lists them all
storms.py     mutants of limits and of children, with storms of their own
scenes.py     the short runs that expose them
everyday.py   what an ordinary run and the simulation alone detect of a mutant
program.py    one program in a broken tree
trial.py      one scene, in its own tree: `python -m chaos.mutants.trial`
hunt.py       copies, patches and tries them, several at a time
table.py      the results
"""
