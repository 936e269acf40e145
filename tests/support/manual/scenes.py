"""Scenes that make the blocks of each page true: the reader's state, and replaced commands.

Without an entry here a shell block is run as it stands, a file with a name is written, SQL is run,
and text is compared with what the block before it wrote.

Long because each page of the manual has its scene here, and nothing else does.
"""

from collections.abc import Mapping
from typing import Final

from attrs import field, frozen


@frozen
class Run:
    """`how` replaces the block's own text; in it `$BLOCK` is a file with the block's text.

    `before` is what a reader does first without being asked, such as to wait. Blocks of a release
    take minutes, or need a network or other programs; `.ci/release` runs them.
    """

    how: str | None = None
    before: str = ""
    release: bool = False


@frozen
class By:
    """Another test runs it, or holds what it shows: `path::function`."""

    test: str


@frozen
class Compared:
    """The output of the block before it."""


@frozen
class Scene:
    """`given` and `after` are shell, `words` what a reader replaces, `blocks` go by their start."""

    given: str = ""
    after: str = ""
    words: Mapping[str, str] = field(factory=dict)
    blocks: Mapping[str, Run | By | Compared] = field(factory=dict)


DOCS: Final = "tests/test_docs.py::"
BINARY: Final = "packaging/binary/check_binary.py::"
DOCKER: Final = "packaging/image/check_docker.py::"
WHEEL: Final = "packaging/wheel/check_wheel.py::"
INSTALLED: Final = By(f"{WHEEL}test_tool_install_works_and_is_removed")
DEVELOPERS: Final = By(f"{DOCS}test_commands_for_developers_name_existing_files")
SCORECARD: Final = By(f"{DOCS}test_the_scorecard_has_every_rule")
DEVELOPED: Final = By("tests/cli/run/test_dev.py::test_jobs_go_on_while_the_code_changes")
IMPORTED: Final = Run("python $BLOCK")
RELEASE: Final = Run(release=True)

_APPROVAL: Final = """
pending() { cortex approvals ls -o name | sort; }
pending > before
asked() {
    until_true 'pending | comm -13 before - | grep -q .'
    pending | comm -13 before - | head -n 1
    pending > before
}
ask() { cortex jobs submit ask -o name > /dev/null; asked; }
"""
"""`ask` submits a job that asks people, `asked` waits for a new request; both print its id."""
_DEAD: Final = """
JOB=$(cortex jobs submit invoice -o name)
until_true 'cortex dead show $JOB > dead.txt 2>&1'
PRINT=$(cortex dead ls --json | grep -o '"fingerprint":"[0-9a-f]*"' | head -n 1 | cut -d '"' -f 4)
"""
_POD: Final = "POD=$(cortex pods ls -o name | head -n 1)\n"
_AGENT: Final = """
agent() {
    printf 'name: %s\\nmodel: claude-sonnet-5\\nsystem: s\\n' $1 > $1.yaml
    cat >> $1.yaml
    cortex agents apply $1.yaml
}
"""
_CLERK: Final = _AGENT + "echo 'tools: [look_up]' | agent clerk\n"
_RECEIVERS: Final = """
export SLACK_URL=http://127.0.0.1:9/hook SMTP_USER=me
export BILLING_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
echo secret > smtp
"""
_TROUBLE: Final = """
echo 'subscriptions: [{name: billing, topic: job.failed, channel: log}]' > subscriptions.yaml
cortex subscriptions apply subscriptions.yaml --reason first
printf 'name: nightly-digest\\ncron: "0 3 * * *"\\njob: invoice\\n' > schedules.yaml
cortex schedules apply schedules.yaml --reason first
sql "INSERT INTO cortex.breaker VALUES ('tool:pay', 'CLOSED', 2, 0, 9, null, null, 0)"
"""
_PORT: Final = """
PORT=$(python -c '
from socket import create_server
print(create_server(("127.0.0.1", 0)).getsockname()[1])')
"""
_MODEL: Final = (
    _PORT
    + """
python -m cortex.demo.server --script echo --port $PORT > model.log 2>&1 &
export ANTHROPIC_BASE_URL=http://127.0.0.1:$PORT ANTHROPIC_API_KEY=scripted
until_true 'grep -q base_url model.log'
"""
)
_SHIP: Final = """
cat > ship.py <<'END'
from cortex import Context, job


@job("ship")
async def ship(ctx: Context, number: int) -> str:
    return f"order {number} is on its way"
END
cat > urls.py <<'END'
from django.urls import path
import views

number = "orders/<path:number>"
urlpatterns = [path(number, lambda request, number: views.order(request, int(number)))]
urlpatterns += [path("jobs/<str:job>", views.result)]
END
cat > settings.py <<'END'
import os
from urllib.parse import parse_qs, urlsplit

parts = urlsplit(os.environ["CORTEX_DSN"])
place = parse_qs(parts.query)
SECRET_KEY, ROOT_URLCONF, ALLOWED_HOSTS = "x", "urls", ["*"]
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username,
    "HOST": place["host"][0], "PORT": place["port"][0],
}}
END
cortex up --app ship.py > pod.log 2>&1 &
export PYTHONPATH=$PWD
"""
_SYSTEMD: Final = """
systemctl() { echo systemctl "$@"; }
useradd() { echo useradd "$@"; }
cp -r $PROJECT/packaging .
install -d etc/systemd/system
"""

_UNIT: Final = """
unit_fits() {
    type -p systemd-analyze || return 0
    sed -i 's#^ExecStart=/usr/local/bin/cortex#ExecStart=/bin/true#' $1/cortex.service
    ! systemd-analyze verify $PWD/$1/cortex.service 2>&1 | grep -E 'cortex.service(.d/.*)?:'
}
"""

SCENES: Final[Mapping[str, Scene]] = {
    "README.md": Scene(
        given=_APPROVAL,
        words={"approve 7f3c": "approve $(ask)"},
        blocks={
            "pip install uv": By(f"{DOCS}test_first_command_works_on_a_fresh_clone"),
            "model    scripted": By(f"{DOCS}test_first_command_works_on_a_fresh_clone"),
            "uv run cortex demo --approve": By(f"{DOCS}test_tour_of_the_readme"),
            "09:42:51.3  ◆ asks": By(f"{DOCS}test_tour_of_the_readme"),
            "# words.py": By(f"{DOCS}test_own_job_of_the_readme_runs"),
            "cortex run words.py": By(f"{DOCS}test_own_job_of_the_readme_runs"),
            "# payments.py": IMPORTED,
            "cortex up --http": Run(
                before=_POD + "JOB=$(cortex jobs submit invoice -o name)",
                how=(
                    "cortex why $JOB; cortex health || [ $? = 8 ]; cortex doctor || [ $? = 1 ];"
                    " cortex tick; cortex pods drain $POD; cortex pods undrain $POD"
                ),
            ),
        },
    ),
    "docs/guides/from-zero.md": Scene(
        blocks={"cortex dev app.py": DEVELOPED, "app.py runs as pod": DEVELOPED}
    ),
    "CONTRIBUTING.md": Scene(blocks={"git clone …": DEVELOPERS}),
    "docs/concepts.md": Scene(
        blocks={
            "attempt 1": By(
                "tests/e2e/test_kill.py::test_a_kill_during_the_tools_does_not_ask_the_model_again"
            )
        }
    ),
    "docs/guides/agents.md": Scene(
        blocks={
            "batch:": Run(f"{_AGENT} agent patient < $BLOCK"),
            "cache:": Run(f"{_AGENT} agent thrifty < $BLOCK"),
            "max_context_tokens:": Run(f"{_AGENT} agent roomy < $BLOCK"),
            "loops:": Run(f"{_AGENT} agent circling < $BLOCK"),
            "output:": Run(f"{_AGENT} agent accountant < $BLOCK"),
            "secrets:": Run(f"{_AGENT} agent secretive < $BLOCK"),
        },
    ),
    "docs/guides/approvals.md": Scene(
        given=_APPROVAL + "ONE=$(ask); OTHER=$(ask)\n",
        words={"7f3c": "$ONE", "a41d": "$OTHER"},
        blocks={
            "approvals:": Run(f"{_AGENT} (echo 'tools: [pay, mail_it]'; cat $BLOCK) | agent payer"),
        },
        after="cortex people enable ana --reason 'back again'",  # other pages know her, too
    ),
    "docs/guides/background.md": Scene(
        words={"postgresql://…": "$CORTEX_DSN", "/srv/app/jobs.py": "jobs.py"},
        blocks={"* * * * *": Run("touch jobs.py; sed 's/^[* ]*//' $BLOCK > line; . ./line")},
    ),
    "docs/guides/budgets-and-quotas.md": Scene(given=_CLERK),
    "docs/guides/built-in-jobs.md": Scene(
        blocks={
            "CORTEX_HTTP_ALLOW": Run(
                """
                set -a; . ./$BLOCK
                python -c '
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.secret_values import PermittedSecrets
AllowedAddresses.of_environment()
assert PermittedSecrets.of_environment().is_in("Bearer env:CRM_TOKEN")'
                """
            )
        },
    ),
    "docs/guides/celery.md": Scene(
        given="printf a > one.png; printf bc > two.png\n",
        blocks={"# tasks.py": Run("python -m py_compile $BLOCK")},
        after="[ $(python submit.py) = 3 ]",
    ),
    "docs/guides/client.md": Scene(
        given='export DATABASE_URL="${CORTEX_DSN%%&sslmode*}"\n',
        blocks={
            "CREATE ROLE web": By(
                "tests/sql/test_submitter.py::test_a_submitter_reads_its_own_jobs_only"
            ),
        },
    ),
    "docs/guides/code-changes.md": Scene(
        given="printf 'import cortex\\n' > new.py\n",
        blocks={
            "# digest.py": IMPORTED,
            # 9: jobs of other pages have tools that this one has not.
            "cortex preflight --app new.py": Run("cortex preflight --app new.py || [ $? = 9 ]"),
        },
    ),
    "docs/guides/databases.md": Scene(
        blocks={"CREATE ROLE": Run('sql "$(cat $BLOCK)"; sql "DROP ROLE pods; DROP ROLE ana_db"')}
    ),
    "docs/guides/deploy.md": Scene(
        given="printf 'import cortex\\n' > shop.py\n",
        blocks={
            "CREATE ROLE": Run(
                'sql "$(cat $BLOCK)"; sql "DROP ROLE pods; DROP ROLE shop; DROP ROLE ana_db"'
            ),
            "# pod.env": Run("(set -a; . ./$BLOCK; cortex config show | grep shop.jobs)"),
            # Jobs of other pages are in flight here, and shop.py takes none of them.
            "cortex preflight": Run("cortex preflight --app shop.py || [ $? = 9 ]; cortex migrate"),
        },
    ),
    "docs/guides/django.md": Scene(
        given=_SHIP,
        after="""
            export DJANGO_SETTINGS_MODULE=settings
            python - <<'END'
import json
import django
django.setup()
from django.test import Client as Browser
from views import jobs
browser = Browser(raise_request_exception=False)
answer = browser.post("/orders/8812")
assert answer.status_code == 202, answer.content
job = json.loads(answer.content)["job"]
assert browser.post("/orders/8812").json()["job"] == job
assert browser.get(f"/jobs/{job}").json() == {"result": "order 8812 is on its way"}
assert browser.post("/orders/-1").status_code == 500
assert len(jobs().jobs.list("type:ship")) == 1
jobs().close()
END
        """,
    ),
    "docs/guides/failures.md": Scene(
        given=_DEAD,
        words={"4f1a": "$PRINT"},
        blocks={
            "cortex dead retry 7f3a": By(
                "tests/cli/test_dead.py::test_an_archived_letter_is_retried_with_an_edited_payload"
            ),
        },
    ),
    "docs/guides/fastapi.md": Scene(
        given=_PORT,
        words={"8000": "$PORT"},
        blocks={
            "curl": Run(before="until_true 'curl -fs http://127.0.0.1:$PORT/docs'"),
        },
        after="""
            JOB=$(curl -fs -X POST http://127.0.0.1:$PORT/orders/8812 | cut -d '"' -f 4)
            curl -fs http://127.0.0.1:$PORT/jobs/$JOB | grep 'order 8812 is on its way'
            [ $(cortex jobs ls type:ship tenant:default -o name | wc -l) = 1 ]
        """,
    ),
    "docs/guides/hosts.md": Scene(
        given=_SYSTEMD + _UNIT,
        after="unit_fits etc/systemd/system",
        words={" /etc/": " etc/"},
        blocks={"pipx install --global": INSTALLED},
    ),
    "docs/guides/http.md": Scene(
        given=f"""
            {_PORT}
            printf 'from cortex import Context, job\\n@job("count_words")\\n'  > words.py
            printf 'async def count(ctx: Context, files: list[str]) -> int: return 3\\n' >> words.py
        """,
        words={"8080": "$PORT"},
        blocks={
            "curl -H": Run(before="until_true 'curl -fs http://127.0.0.1:$PORT/readyz'"),
        },
    ),
    "docs/guides/signals.md": Scene(
        given=_PORT,
        words={"8080": "$PORT"},
        blocks={
            '{"id":"01a2': By(
                "tests/callbacks/test_callback_route.py::test_body_arrives_as_a_signal_of_the_job"
            ),
            "from uuid import UUID": By(
                "tests/callbacks/test_client_signals.py"
                "::test_a_statement_sends_in_the_callers_transaction"
            ),
            "from shop import sale": Run("cat $BLOCK > test_sale.py; pytest -q test_sale.py"),
        },
        after="""
            cortex jobs wait $JOB
            cortex jobs show $JOB | grep '48 euros, to Kingsway 4'
            cortex jobs show $JOB | grep 'leave it at the door'
        """,
    ),
    "docs/guides/children.md": Scene(
        blocks={
            "from cortex import Context, job\n\n\n@job\nasync def resize": IMPORTED,
            "from cortex import Context, job\n\n\n@job\nasync def survey": IMPORTED,
            'step "report" gives': By(
                "tests/children/test_shares.py::test_share_above_the_budget_of_its_parent_is_refused"
            ),
            "from cortex import ChildFailedError": IMPORTED,
            "album …": By(
                "tests/children/test_tree.py::test_tree_folds_most_of_many_children_and_counts_them"
            ),
            "step 'dig'": By(
                "tests/children/test_pods.py::test_job_that_submits_itself_without_end_fails"
            ),
        }
    ),
    "docs/guides/limits.md": Scene(
        blocks={
            "from cortex import Concurrency": IMPORTED,
            "name: clerk": Run("cortex agents apply $BLOCK"),
            "payload.customer": By(
                "tests/limits/test_admission.py::"
                "test_key_missing_in_the_payload_is_refused_with_its_whole_batch"
            ),
        }
    ),
    "docs/guides/mcp.md": Scene(
        blocks={
            "name: maintainer": Run("cortex agents apply $BLOCK"),
            "import cortex": By(
                "tests/mcp/test_job_code.py::test_job_code_calls_a_tool_of_its_server_as_an_effect"
            ),
            "$ cortex agents trust": By(
                "tests/mcp/test_commands.py::test_trust_shows_the_change_and_accepts_it"
            ),
            '{"mcpServers": {"cortex": {"command"': By(
                "tests/mcp_server/test_guide.py::test_a_configuration_of_the_guide_starts_it"
            ),
            '{"mcpServers": {"cortex": {\n    "type"': By(
                "tests/mcp_server/test_http.py::test_many_assistants_are_served_beside_each_other"
            ),
            '{"mcpServers": {"cortex": {\n    "command"': By(
                "tests/mcp_server/test_guide.py::test_a_configuration_of_the_guide_starts_it"
            ),
            '{\n  "job"': By(
                "tests/mcp_server/test_guide.py::test_an_answer_of_a_tool_is_as_the_guide_shows"
            ),
            "cortex mcp --http": By(
                "tests/mcp_server/test_http.py::test_many_assistants_are_served_beside_each_other"
            ),
        },
    ),
    "docs/guides/models.md": Scene(
        given=_AGENT,
        blocks={
            "[models.local]": By(
                "tests/providers/test_registry.py::test_the_guides_tables_are_taken"
            ),
            "model: claude-sonnet-5": Run("sed 's/^model/#&/' $BLOCK | agent elsewhere"),
        },
    ),
    "docs/guides/install.md": Scene(
        blocks={
            "pip install --require-hashes": By(
                "tests/test_constraints.py::test_a_package_from_a_checkout_has_the_versions_of_the_gate"
            ),
            "gh attestation": By(
                "tests/test_hosting.py::test_a_release_is_audited_built_and_attested_in_this_order"
            ),
            "sha256sum": By(f"{BINARY}test_killed_demo_resumes_and_is_approved_in_the_terminal_ui"),
            "cortex up --app shop.py": By(
                f"{BINARY}test_environment_of_another_python_is_refused_by_name"
            ),
            "docker load": By(f"{DOCKER}test_guide_commands_start_and_show_a_pod"),
            "--env": By(f"{DOCKER}test_container_becomes_healthy_and_docker_stop_drains_it"),
            "--volume": By(f"{DOCKER}test_containers_read_the_dsn_from_a_mounted_file"),
            "# Dockerfile": By(f"{DOCKER}test_app_image_runs_its_own_jobs_and_packages"),
            "docker build": By(f"{DOCKER}test_app_image_runs_its_own_jobs_and_packages"),
            "pipx install": INSTALLED,
        },
    ),
    "docs/guides/jobs.md": Scene(
        given=_MODEL + _APPROVAL,
        words={" --wait": " > job"},
        blocks={
            "# digest.py": Run(
                """
                cat >> digest.py <<'END'


async def fetch(url: str) -> str:
    return "news"


async def post_to_channel(text: str) -> int:
    return 200
END
                cortex up --app digest.py > pod.log 2>&1 &
                until_true 'grep -q "is ready" pod.log'
                """
            ),
            "SELECT": Run(
                'sql "$(cat $BLOCK)"',
                before="""
                    cortex approvals approve $(asked)
                    cortex jobs wait $(cat job)
                """,
            ),
            "# shared.py": IMPORTED,
            "# inbox.py": IMPORTED,
            "# render.py": IMPORTED,
        },
    ),
    "docs/guides/kubernetes.md": Scene(
        given="""
            export KUBECONFIG=$PWD/kubeconfig
            command kubectl config set-context here
            command kubectl config use-context here
            ln -s $PROJECT cortex
            ln -s $PROJECT/packaging packaging
            # There is no cluster: what needs none is done, of the rest the command is looked up.
            kubectl() {
                case $1 in
                config) command kubectl "$@" ;;
                create) command kubectl "$@" --dry-run=client ;;
                apply) command kubectl kustomize $3 ;;
                *) command kubectl $1 --help ;;
                esac
            }
            helm() { command helm template "${@:2}"; }
        """,
        blocks={
            "kubectl create namespace": RELEASE,
            "docker load": By(f"{DOCKER}test_guide_commands_start_and_show_a_pod"),
            "kubectl create secret": RELEASE,
            "helm install": RELEASE,
            "# kustomization.yaml\n": Run(
                """
                mkdir shop
                mv $BLOCK shop
                cd shop
                """,
                release=True,
            ),
            "kubectl apply": Run(
                "kubectl apply -k . | grep 'image: registry.example.com/shop:7'", release=True
            ),
            "kubectl rollout": RELEASE,
            "export CORTEX_DSN": By(
                "tests/hostile/test_people.py::test_a_pods_login_passes_on_what_a_caller_proves"
            ),
            "kubectl exec -it deployment/cortex -- sh": RELEASE,
            "# kustomization.yaml, one more patch": Run(
                """
                sed -n '/- target/,$p' "$BLOCK" >> kustomization.yaml
                command kubectl kustomize . | grep 'port: 4318'
                """,
                release=True,
            ),
            "# values of prometheus-adapter": Run(
                """
                python - "$BLOCK" <<END
import sys, yaml
from cortex.runtime.metrics.metrics_catalogue import DUE
(rule,) = yaml.safe_load(open(sys.argv[1]))["rules"]["external"]
assert rule["seriesQuery"] == DUE.name
END
                """,
                release=True,
            ),
        },
    ),
    "docs/guides/logs.md": Scene(
        # A job's last lines are written a moment after its end.
        words={
            "cortex logs $JOB": "until_true 'cortex logs $JOB | grep -w done'; cortex logs $JOB",
        },
        blocks={
            "OTEL_EXPORTER_OTLP_ENDPOINT": By(f"{WHEEL}test_install_with_traces_exports_them"),
        },
    ),
    "docs/guides/monitoring.md": Scene(
        blocks={
            "cortex health": Run(
                "cortex health || [ $? = 8 ]; cortex health -o json || [ $? = 8 ]"
            ),
            "scrape_configs": Run(
                "cp $PROJECT/packaging/prometheus/alerts.yaml .;"
                " ! type -p promtool || promtool check config --syntax-only $BLOCK"
            ),
        },
    ),
    "docs/guides/notifications.md": Scene(
        given=_RECEIVERS + _APPROVAL,
        words={"7f3c": "$(ask)"},
    ),
    "docs/guides/outbox.md": Scene(given=_RECEIVERS, words={"/run/secrets/smtp": "{folder}/smtp"}),
    "docs/guides/retention.md": Scene(
        after="cortex retention unset --reason tried",
        words={"/srv/archive": "$PWD/archive"},
    ),
    "docs/guides/which-first.md": Scene(
        blocks={
            "# shop.py": Run(
                """
                cortex up --app shop.py > pod.log 2>&1 &
                until_true 'grep -q "is ready" pod.log'
                """
            ),
        },
    ),
    "docs/guides/schedules.md": Scene(
        given=_AGENT + "agent researcher < /dev/null",
        after="cortex schedules rm nightly-digest --reason tried",
    ),
    "docs/guides/shutdown.md": Scene(
        given=_POD,
        words={"POD ": "$POD ", "undrain POD": "undrain $POD", "QUEUE ": "nightly "},
        after="cortex resume queue:nightly",
    ),
    "docs/guides/tools-and-effects.md": Scene(
        blocks={"# weather.py": IMPORTED, "# payments.py": IMPORTED}
    ),
    "docs/guides/tracing.md": Scene(
        blocks={"pip install": By(f"{WHEEL}test_install_with_traces_exports_them")}
    ),
    "docs/internals/architecture.md": Scene(
        blocks={
            "cortex/domain": By(f"{DOCS}test_the_rooms_of_the_architecture_are_all_there"),
            "island and pool": By(
                "tests/unit/actors/test_phases.py"
                "::test_each_level_gets_its_own_grace_after_the_one_within"
            ),
        }
    ),
    "docs/internals/chaos.md": Scene(
        given="""
            cat > mine.py <<'END'
from cortex import Context, job

@job("digest")
async def digest(ctx: Context) -> int:
    return await ctx.step("count", lambda: 3)
END
            cd $PROJECT
        """,
        words={"mine.py": "{folder}/mine.py"},
        blocks={
            "uv run python -m chaos run --deploy": RELEASE,
            "uv run python -m chaos run --seed": RELEASE,
            "seed 4:": SCORECARD,
            "uv run python -m chaos points": RELEASE,
            "uv run python -m chaos agents": RELEASE,
            "uv run python -m chaos signals": RELEASE,
            "uv run python -m chaos limits": RELEASE,
            "uv run python -m chaos families": RELEASE,
        },
    ),
    "docs/guides/waiting.md": Scene(
        blocks={
            "from cortex import Context": IMPORTED,
            "import cortex": IMPORTED,
            "import asyncio": IMPORTED,
            "$ cortex why": By("tests/first/test_pods.py::test_why_names_all_that_wakes_a_job"),
            "$ cortex jobs state": By(
                "tests/first/test_pods.py::test_killed_pods_leave_what_a_job_shows"
            ),
        }
    ),
    "docs/internals/schema.md": Scene(
        blocks={
            "$ python": By(
                "tests/sql/test_schema_page.py::test_the_page_is_the_schema_of_all_migrations"
            ),
            "erDiagram": By(
                "tests/sql/test_schema_page.py::test_the_page_is_the_schema_of_all_migrations"
            ),
        }
    ),
    "docs/internals/scorecard.md": Scene(
        given="cd $PROJECT",
        blocks={
            "uv run": RELEASE,
            "seed 4:": SCORECARD,
        },
    ),
    "docs/internals/testing.md": Scene(blocks={"uv run pytest": DEVELOPERS}),
    "docs/reference/python.md": Scene(
        given=_MODEL
        + _PORT
        + "CALLED=$PORT\n"
        + _PORT
        + _APPROVAL
        + _AGENT
        + "mkdir bank; export PYTHONPATH=$PWD\n",
        after="""
            python -m http.server --bind 127.0.0.1 $PORT > web.log 2>&1 &
            apps='--app digest.py --app chores.py --app bank.py --app orders.py'
            apps="$apps --app offer.py --app pages.py --app reorder.py --app sale.py"
            export SIGNING_KEY=abcdefghijkl
            echo 'secrets: {SIGNING_KEY: {env: SIGNING_KEY}}' | agent signer
            export CORTEX_CALLBACK_SECRET=$(openssl rand -hex 32)
            cortex up $apps --http 127.0.0.1:$CALLED > pod.log 2>&1 &
            until_true 'grep -q "is ready" pod.log'
            python ship.py > sold.txt
            grep -x 202 sold.txt
            grep "'paid': 48" sold.txt
            grep "'to': 'Kingsway 4'" sold.txt
            python submit.py > paid.txt
            grep -E '^receipt [0-9a-f-]{36}$' paid.txt
            grep euros paid.txt
            python script.py > offer.txt &
            SCRIPT=$!
            cortex approvals deny $(asked) --reason 'too cheap' --as ann
            wait $SCRIPT
            grep -E 'denied by .* \\(ann\\): too cheap' offer.txt
            FOUND=http://127.0.0.1:$PORT/bank.py SIZE=$(wc -c < bank.py)
            cortex jobs submit digest --arg "urls=[\\"$FOUND\\"]" --wait 2>&1 | grep bank.py.*$SIZE
            cortex jobs submit patient --arg url=$FOUND --wait 2>&1 | grep $SIZE
            ASKED=$(cortex jobs ls type:patient -o name)
            until_true 'cortex logs $ASKED | grep "asks.*$FOUND"'
            cortex jobs submit take_order --arg number=7
            until_true 'grep -E "order 7, attempt 1 of " pod.log'
            AT=2024-01-01T09:00Z
            cortex jobs submit remind --agent signer --wait --arg text=tea --arg at=$AT
            grep -F '(12 letters sign this)' *.txt
            LATER=http://127.0.0.1:$PORT/later.py
            cortex jobs submit digest --arg "urls=[\\"$LATER\\"]" --wait || [ $? = 6 ]
            touch later.py
            python office.py > office.txt
            grep -Ex 'denied by .* \\(ann\\): too early' office.txt
            grep -x 'offer CANCELLED' office.txt
            grep -i select office.txt
            grep "{'$LATER': 0}" office.txt
            pytest -q test_offer.py > tests.txt || cat tests.txt
            grep '^7 passed' tests.txt
            cortex jobs submit reorder --arg shelf=b7 --arg days=0 --wait 2>&1 | grep 'b7: too late'
            python follow.py > follow.txt
            grep -x 'page 3 has 3 rows' follow.txt
            grep -x 'batch True' follow.txt
        """,
    ),
    "docs/runbooks.md": Scene(
        given=_TROUBLE + _DEAD + _POD + "ID=$(cortex outbox ls -o name | head -n 1)\n",
        after="cortex schedules rm nightly-digest --reason tried",
        words={
            "4f1a": "$PRINT",
            "show JOB": "show $JOB",
            "why JOB": "why $JOB",
            "show ID": "show $ID",
        },
        blocks={"cortex health ": Run("cortex health || [ $? = 8 ]; cortex doctor || [ $? = 1 ]")},
    ),
    "docs/tutorial.md": Scene(
        given=_PORT + "DSN=$CORTEX_DSN; unset CORTEX_DSN; export CORTEX_DATA=$PWD/data\n",
        words={
            "8901": "$PORT",
            "cat pod.log": "until_true 'grep -q \"is ready\" pod.log'; cat pod.log",
            "'/path/to/checkout[embedded]'": "$PROJECT[embedded]",
            "/usr/local/bin/cortex": "$CORTEX",
            "/srv/clerk": "$PWD",
            "20 if": "5 if",
            "approve $(cortex approvals ls -o name)": "approve $APPROVAL",
            "postgresql://cortex@db.example.com/cortex": "$DSN",
        },
        blocks={
            "mkdir clerk": RELEASE,
            "cortex why $JOB": Run(before="until_true 'cortex approvals ls -o name | grep -q .'"),
            "cortex jobs show $JOB": Run(
                # One payment, of this amount: figures are not compared.
                before="""test "$(cat bank/*)" = '{"order": "1042", "euros": 48.0}'"""
            ),
            "# clerk.conf": Run(
                f"""{_UNIT}
                    grep ^ExecStart=. $BLOCK | sed s/ExecStart=// > start
                    install -d units/cortex.service.d
                    sed 's#=$CORTEX#=/bin/true#' $BLOCK > units/cortex.service.d/$BLOCK
                    cp $PROJECT/packaging/systemd/cortex.s* units
                    unit_fits units
                """
            ),
            "export CORTEX_DSN": Run(
                before=f"""
                    export CORTEX_DSN=$DSN{_APPROVAL}
                    cortex scripted-model model.py:answer --port $PORT > model.log &
                    CORTEX=$(type -p cortex)
                """
            ),
            "CORTEX_TOKEN": Run(
                before="""
                    eval "exec $(cat start)" > deployed.log 2>&1 &
                    APPROVAL=$(asked)
                """
            ),
        },
    ),
    "docs/upgrade.md": Scene(
        given=_POD + _SYSTEMD,
        after="cortex pods undrain $POD",
        words={"drain POD": "drain $POD"},
    ),
}
