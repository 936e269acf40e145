"""`--tenant` keeps a command to what is one tenant's."""

from tests.support.command_line import Cortex
from tests.support.life import Life


def test_a_command_keeps_to_its_tenant(cortex: Cortex, life: Life) -> None:
    life.type("work")
    made = cortex("jobs", "submit", "work", "--tenant", "acme", "-o", "name")
    job = made.out.strip()
    (row,) = life.sql("SELECT tenant FROM cortex.job")
    assert row["tenant"] == "acme"
    assert cortex("jobs", "ls", "--tenant", "acme", "-o", "name").out.split() == [job]
    assert cortex("jobs", "ls", "--tenant", "bolt", "-o", "name").out == ""
    assert cortex("jobs", "show", job, "--tenant", "acme").code == 0
    for name in (job, job[-8:]):
        assert cortex("jobs", "show", name, "--tenant", "bolt").code == 3
        assert cortex("jobs", "cancel", name, "--reason", "x", "--yes", "--tenant", "bolt").code > 0
    assert cortex("jobs", "show", job).code == 0


def test_the_environment_names_the_tenant_and_an_option_another(cortex: Cortex, life: Life) -> None:
    life.type("work")
    env = {"CORTEX_TENANT": "acme"}
    assert cortex("jobs", "submit", "work", env=env).code == 0
    assert cortex("jobs", "submit", "work", "--tenant", "bolt", env=env).code == 0
    rows = life.sql("SELECT tenant FROM cortex.job ORDER BY created_at")
    assert [row["tenant"] for row in rows] == ["acme", "bolt"]
