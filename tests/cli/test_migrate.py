from pathlib import Path

from tests.support.command_line import Cortex


def test_migrate_reports_applied_versions_and_is_idempotent(
    tmp_path: Path, empty_database: str
) -> None:
    cortex = Cortex(tmp_path, empty_database)
    assert cortex("migrate", "--check").code == 1
    first = cortex("migrate", "--json").document
    assert [each["version"] for each in first["applied"]] == list(range(1, first["version"] + 1))
    again = cortex("migrate")
    assert again.out == f"the schema is up to date: version {first['version']}\n"
    assert cortex("migrate", "--check").code == 0


URL = ("--arg", "url=https://example.org")


def test_every_command_finds_the_embedded_database(
    cortex_nowhere: Cortex, server_home: Path
) -> None:
    data = ["--data", str(server_home / "data")]
    assert cortex_nowhere("migrate", *data).code == 0
    job_id = cortex_nowhere("jobs", "submit", "http_request", *URL, *data).out.strip()
    assert cortex_nowhere("jobs", "ls", "-o", "name", *data).out == f"{job_id}\n"
    variable = cortex_nowhere("jobs", "ls", "-o", "name", env={"CORTEX_DATA": data[1]})
    assert variable.out == f"{job_id}\n"
