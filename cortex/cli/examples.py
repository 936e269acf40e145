"""One or two examples of each command, which its `--help` and the manual show.

They are read when help is shown, and by nothing else. A test parses each.
"""

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    # --- run
    "demo": ("cortex demo", "cortex demo --approve"),
    "init": ("cortex init shop",),
    "up": ("cortex up app.py", "cortex up shop.jobs shop.agents --http 127.0.0.1:8080"),
    "dev": ("cortex dev app.py", "cortex dev app.py --tui"),
    "run": (
        "cortex run app.py count_words text='from zero'",
        "cortex run app.py 9f3a1c     # goes on with a job",
    ),
    "tick": ("cortex tick --app app.py", "cortex tick --runners retries"),
    "preflight": ("cortex preflight new.py",),
    "migrate": ("cortex migrate", "cortex migrate --check"),
    "scripted-model": ("cortex scripted-model model.py:answer --port 8901",),
    "bench throughput": ("cortex bench throughput --jobs 20000",),
    "bench steps": ("cortex bench steps --jobs 4000",),
    "bench latency": ("cortex bench latency",),
    "bench client": ("cortex bench client",),
    "bench takeover": ("cortex bench takeover --repeat 3",),
    # --- jobs
    "tui": ("cortex tui", "cortex tui --read-only"),
    "jobs ls": (
        "cortex jobs ls status:retry 'agent:invoice-*' -n 20",
        "cortex jobs ls 'age<1h' --json",
    ),
    "jobs show": ("cortex jobs show 9f3a1c", "cortex jobs show 9f3a1c --json"),
    "jobs watch": ("cortex jobs watch 9f3a1c",),
    "jobs wait": ("cortex jobs wait 9f3a1c 5d20b7 --timeout 60",),
    "jobs timeouts": ("cortex jobs timeouts 9f3a1c",),
    "jobs types": ("cortex jobs types",),
    "jobs submit": (
        "cortex jobs submit count_words text='from zero' --wait",
        "cortex jobs submit count_words --payload @in.json --delay 60",
    ),
    "jobs cancel": (
        "cortex jobs cancel 9f3a1c --reason 'not needed'",
        "cortex jobs cancel --filter 'type:digest status:pend' --dry-run",
    ),
    "jobs retry": ("cortex jobs retry 9f3a1c", "cortex jobs retry --filter 'status:retry age>1h'"),
    "jobs resume": ("cortex jobs resume 9f3a1c",),
    "why": ("cortex why 9f3a1c",),
    "logs": ("cortex logs 9f3a1c -f", "cortex logs --all --level error --since 1h"),
    # --- people
    "approvals ls": ("cortex approvals ls",),
    "approvals show": ("cortex approvals show 7f3c",),
    "approvals watch": ("cortex approvals watch",),
    "approvals approve": (
        "cortex approvals approve 7f3c",
        "cortex approvals approve 7f3c --edit arguments.json --reason 'one recipient less'",
    ),
    "approvals deny": ("cortex approvals deny 7f3c --reason 'not to customers'",),
    "approvals link": ("cortex approvals link 7f3c",),
    # --- agents and flows
    "agents ls": ("cortex agents ls",),
    "agents show": ("cortex agents show clerk", "cortex agents show clerk --version 2"),
    "agents apply": ("cortex agents apply clerk.yaml",),
    "flows ls": ("cortex flows ls",),
    "flows show": ("cortex flows show invoices",),
    "flows graph": ("cortex flows graph invoices", "cortex flows graph flows.yaml --mermaid"),
    "flows validate": ("cortex flows validate flows.yaml",),
    "flows apply": ("cortex flows apply flows.yaml",),
    # --- pods and background work
    "pods ls": ("cortex pods ls --all",),
    "pods drain": ("cortex pods drain vm:7387 --reason 'new kernel'",),
    "pods undrain": ("cortex pods undrain vm:7387",),
    "runners ls": ("cortex runners ls",),
    "queues ls": ("cortex queues ls",),
    "queues pause": ("cortex queues pause default --reason 'errors since 14:00'",),
    "queues resume": ("cortex queues resume default",),
    "queues order": ("cortex queues order billing strict --reason 'invoices in order'",),
    "patches": ("cortex patches",),
    "schedules ls": ("cortex schedules ls",),
    "schedules show": ("cortex schedules show nightly-digest",),
    "schedules preview": ("cortex schedules preview nightly-digest --for 7d",),
    "schedules apply": ("cortex schedules apply schedules.yaml",),
    "schedules pause": ("cortex schedules pause nightly-digest --reason 'the source is down'",),
    "schedules resume": ("cortex schedules resume nightly-digest",),
    "schedules trigger": (
        "cortex schedules trigger nightly-digest --reason 'missed in the outage'",
    ),
    "schedules rm": ("cortex schedules rm monday-report --reason 'nobody reads it'",),
    # --- health and cost
    "health": ("cortex health",),
    "doctor": ("cortex doctor", "cortex doctor --quick"),
    "costs": ("cortex costs --by agent --since 7d",),
    "facts": ("cortex facts --type error --since 1h",),
    # --- effects and limits
    "effects ls": ("cortex effects ls --status unknown",),
    "effects show": ("cortex effects show 1833fc",),
    "effects resolve": ("cortex effects resolve 1833fc applied --reason 'it is in the ledger'",),
    "freeze status": ("cortex freeze status",),
    "freeze on": ("cortex freeze on --reason 'errors since 14:00'",),
    "freeze off": ("cortex freeze off --reason 'the provider is back'",),
    "quotas ls": ("cortex quotas ls",),
    "quotas set": (
        "cortex quotas set pay --limit 20 --per hour --reason 'until the audit is over'",
        "cortex quotas set pay --limit 500 --of euros --per day --reason 'daily limit'",
    ),
    "quotas rm": ("cortex quotas rm pay:calls:hour --reason 'the audit is over'",),
    "budgets ls": ("cortex budgets ls",),
    "budgets set": ("cortex budgets set --agent clerk --usd 50 --per day --reason 'first month'",),
    "budgets raise": ("cortex budgets raise agent:clerk:usd:day --to 80 --reason 'more orders'",),
    "budgets rm": ("cortex budgets rm agent:clerk:usd:day --reason 'no limit from now on'",),
    "breakers ls": ("cortex breakers ls",),
    "breakers open": (
        "cortex breakers open tool:pay --for 30m --reason 'the bank asked for a pause'",
    ),
    "breakers close": ("cortex breakers close tool:pay --reason 'the bank is back'",),
    # --- dead letters and messages
    "dead ls": ("cortex dead ls --since 1h", "cortex dead ls 'agent:invoice-*' --each"),
    "dead show": ("cortex dead show 9f3a1c",),
    "dead retry": (
        "cortex dead retry --fingerprint 4f1a --dry-run",
        "cortex dead retry --fingerprint 4f1a --rate 10 --reason 'fixed today'",
    ),
    "dead discard": ("cortex dead discard --filter 'agent:test-* ended>30d' --reason 'too old'",),
    "outbox ls": ("cortex outbox ls --status failed",),
    "outbox show": ("cortex outbox show 41",),
    "outbox retry": ("cortex outbox retry --subscription billing --reason 'the receiver is back'",),
    "outbox discard": ("cortex outbox discard --topic 'order.*' --reason 'a test'",),
    "subscriptions ls": ("cortex subscriptions ls",),
    "subscriptions apply": ("cortex subscriptions apply subscriptions.yaml",),
    "subscriptions test": ("cortex subscriptions test billing",),
    "subscriptions rm": ("cortex subscriptions rm billing --reason 'gone'",),
    # --- this installation
    "retention show": ("cortex retention show",),
    "retention set": ("cortex retention set --completed 30d --failed 90d --reason 'our policy'",),
    "retention unset": ("cortex retention unset --reason 'audit'",),
    "tokens ls": ("cortex tokens ls",),
    "tokens create": ("cortex tokens create --name ana --role approver --expires 90d",),
    "tokens revoke": ("cortex tokens revoke ana",),
    "licences": ("cortex licences", "cortex licences trio"),
    "config show": ("cortex config show",),
    "completion": ("cortex completion bash > ~/.local/share/bash-completion/completions/cortex",),
    "version": ("cortex version",),
}
"""The lines by the path of their command; what follows ` #` or ` >` is for the reader's shell."""
