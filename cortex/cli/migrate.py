"""`cortex migrate`: brings the database's schema up to date, or checks it."""

from functools import partial

import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import database, settings_from
from cortex.postgres import migrate as schema
from cortex.postgres.session import run_alone


@click.command(cls=Command)
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if it is out of date.")
@click.pass_obj
def migrate(options: Options, *, check: bool) -> None:
    """Bring the database's schema up to date; safe to run at any time and concurrently."""
    output = Output(options)
    applied: list[schema.Migration] = []
    with database(settings_from(options), must_exist=check) as dsn:
        if check:
            run_alone(partial(schema.check, dsn))
        else:
            applied = run_alone(partial(schema.migrate, dsn))
    version = len(schema.migrations())
    document = {
        "version": version,
        "applied": [{"version": each.version, "name": each.name} for each in applied],
    }

    def page() -> list[str]:
        lines = [f"applied {each.version:04} {each.name}" for each in applied]
        return [*lines, f"the schema is up to date: version {version}"]

    output.record(document, name=str(version), page=page)
