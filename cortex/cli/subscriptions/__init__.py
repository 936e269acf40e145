"""`cortex subscriptions`: the group; each verb has its own file."""

from cortex.cli.options import Group

subscriptions = Group(
    "subscriptions",
    help=(
        "Choose who gets which messages.\n\nA subscription sends the messages of a topic to a "
        "webhook, to Slack, by e-mail or to the log. Code subscribes with `@handler(…)`."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.subscriptions.ls:ls", "List subscriptions and what waits."),
        },
        "Change": {
            "apply": (
                "cortex.cli.subscriptions.apply:apply",
                "Apply subscriptions from YAML files.",
            ),
            "test": (
                "cortex.cli.subscriptions.test:test",
                "Send one message now, from this machine.",
            ),
            "rm": ("cortex.cli.subscriptions.apply:rm", "Remove a subscription."),
        },
    },
)
