"""`cortex dead`: the group; each verb has its own file."""

from cortex.cli.options import Group

dead = Group(
    "dead",
    help=(
        "List failed jobs, retry or discard them.\n\nEach failed job leaves a "
        "dead letter, named by the job's id or the end of it."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.dead.ls:ls", "List dead letters by error."),
            "show": ("cortex.cli.dead.show:show", "Show why a job failed, and what would help."),
        },
        "Change": {
            "retry": ("cortex.cli.dead.retry:retry", "Continue failed jobs in new ones."),
            "discard": ("cortex.cli.dead.discard:discard", "Discard dead letters."),
        },
    },
)
