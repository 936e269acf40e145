"""`cortex approvals`: the group; each verb has its own file."""

from cortex.cli.options import Group

approvals = Group(
    "approvals",
    help=(
        "Decide requests that jobs make before they do something "
        "dangerous.\n\nName a request by its id or the end of the id. A waiting "
        "request holds no slot or connection."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.approvals.ls:ls", "List requests, the most dangerous first."),
            "show": ("cortex.cli.approvals.show:show", "Show everything a decision is based on."),
            "watch": ("cortex.cli.approvals.watch:watch", "Follow requests and decisions."),
        },
        "Change": {
            "approve": (
                "cortex.cli.approvals.approve:approve",
                "Approve, with the arguments as they are or edited.",
            ),
            "deny": ("cortex.cli.approvals.deny:deny", "Deny, with a reason."),
            "link": ("cortex.cli.approvals.link:link", "Create a link to a request's page."),
        },
    },
)
