"""`cortex outbox`: the group; each verb has its own file."""

from cortex.cli.options import Group

outbox = Group(
    "outbox",
    help="List, explain, retry and discard messages to people and other systems.",
    sections={
        "Inspect": {
            "ls": ("cortex.cli.outbox.ls:ls", "List messages, the newest first."),
            "show": ("cortex.cli.outbox.show:show", "Show a message and its attempts."),
        },
        "Change": {
            "retry": ("cortex.cli.outbox.change:retry", "Send failed messages again."),
            "discard": ("cortex.cli.outbox.change:discard", "Delete unsent messages."),
        },
    },
)
