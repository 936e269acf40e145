"""`cortex jobs`: the group; each verb has its own file."""

from cortex.cli.options import Group

jobs = Group(
    "jobs",
    help=(
        "Submit, list, show, watch, wait for, signal and cancel jobs.\n\nA job is named "
        "by its id or by the end of it, at least 4 digits: …9f3a1c."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.jobs.ls:ls", "List jobs, the newest first."),
            "show": ("cortex.cli.jobs.show:show", "Show a job: its steps, attempts and history."),
            "watch": ("cortex.cli.jobs.watch:watch", "Follow a job until it ends."),
            "tree": ("cortex.cli.jobs.tree:tree", "Show a job and the jobs below it."),
            "state": ("cortex.cli.jobs.state:state", "Show what a job publishes of itself."),
            "wait": ("cortex.cli.jobs.watch:wait", "Wait silently until jobs end."),
            "timeouts": ("cortex.cli.jobs.timeouts:timeouts", "Show a job's time-outs."),
            "types": (
                "cortex.cli.jobs.job_types:types",
                "List the job types that pods have registered.",
            ),
        },
        "Change": {
            "submit": ("cortex.cli.jobs.submit:submit", "Submit a job and print its id."),
            "cancel": ("cortex.cli.jobs.cancel:cancel", "Cancel jobs."),
            "retry": ("cortex.cli.jobs.retry:retry", "Retry waiting jobs now."),
            "priority": ("cortex.cli.jobs.priority:priority", "Move a job in the line."),
            "signal": ("cortex.cli.jobs.signal:signal", "Send a signal to a job or a key."),
            "resume": ("cortex.cli.jobs.resume:resume", "Continue a failed job."),
        },
    },
)
