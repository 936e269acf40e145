"""`cortex approvals`: the group; each verb has its own file."""

from cortex.cli.options import Group

approvals = Group(
    "approvals",
    help="Decide what jobs ask people for before they do something dangerous.\n\n"
    "A request is named by its id or the end of it. While one waits, its job holds nothing.",
    sections={
        "Look": {
            "ls": ("cortex.cli.approvals.ls:ls", "List requests, the most dangerous first."),
            "show": ("cortex.cli.approvals.show:show", "Show all that decides about a request."),
            "watch": ("cortex.cli.approvals.watch:watch", "Follow requests and decisions."),
        },
        "Act": {
            "approve": (
                "cortex.cli.approvals.approve:approve",
                "Agree, to the arguments as they are or as you edit them.",
            ),
            "deny": ("cortex.cli.approvals.deny:deny", "Say no, and why."),
            "link": ("cortex.cli.approvals.link:link", "Make a link to a request's page."),
        },
    },
)
