"""`cortex schedules`: the group; each verb has its own file."""

from cortex.cli.options import Group

schedules = Group(
    "schedules",
    help=(
        "Apply, list, preview and pause schedules.\n\nA schedule submits a job at each instant of "
        "a cron expression, once across all pods. Code declares them with `@job(schedule=…)`, "
        "files with `cortex schedules apply`."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.schedules.ls:ls", "List schedules: next and last instants."),
            "show": ("cortex.cli.schedules.ls:show", "Show one schedule and its last instants."),
            "preview": (
                "cortex.cli.schedules.preview:preview",
                "Show what will fire, and its likely cost.",
            ),
        },
        "Change": {
            "apply": ("cortex.cli.schedules.apply:apply", "Apply schedules from YAML files."),
            "pause": ("cortex.cli.schedules.change:pause", "Fire nothing until it is resumed."),
            "resume": ("cortex.cli.schedules.change:resume", "Resume a paused schedule."),
            "trigger": ("cortex.cli.schedules.change:trigger", "Submit a job of it now."),
            "rm": ("cortex.cli.schedules.change:rm", "Remove a schedule; its jobs stay."),
        },
    },
)
