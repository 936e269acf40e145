"""`cortex tokens`: the group; each verb has its own file."""

from cortex.cli.options import Group

tokens = Group(
    "tokens",
    help=(
        "Manage access of people and programs to the HTTP API.\n\nA token is "
        "named by its id, by the end of it, or by its person if there is only "
        "one."
    ),
    sections={
        "Inspect": {"ls": ("cortex.cli.tokens.ls:ls", "List tokens and their last use.")},
        "Change": {
            "create": ("cortex.cli.tokens.create:create", "Create a token and show it, once."),
            "revoke": ("cortex.cli.tokens.revoke:revoke", "Revoke a token."),
        },
    },
)
