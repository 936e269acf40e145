"""`cortex dead`: the group; each verb has its own file."""

from cortex.cli.options import Group

dead = Group(
    "dead",
    help="Look at failed jobs, retry them or give them up.\n\n"
    "Each job that failed leaves a dead letter, named by the job: its id or the end of it.",
    sections={
        "Look": {
            "ls": ("cortex.cli.dead.ls:ls", "List dead letters by their error."),
            "show": ("cortex.cli.dead.show:show", "Tell why a job failed, and what would help."),
        },
        "Act": {
            "retry": ("cortex.cli.dead.retry:retry", "Go on from failed jobs in new ones."),
            "discard": ("cortex.cli.dead.discard:discard", "Give failed jobs up."),
            "acts": ("cortex.cli.dead.bulk:acts", "Acts on many at once, which pods work off."),
        },
    },
)
