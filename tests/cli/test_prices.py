"""The file of prices: how it combines with the list prices, and the errors of a wrong one."""

from decimal import Decimal
from pathlib import Path

import pytest

from cortex.cli.run.prices import prices_of
from cortex.config import Settings
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.prices import LIST_PRICES
from cortex.domain.usage import Usage
from tests.support.command_line import Cortex

USAGE = Usage(input_tokens=1_000_000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prices.toml"


def test_without_a_file_the_list_prices_hold() -> None:
    assert prices_of(Settings()) is LIST_PRICES


def test_a_file_is_laid_over_the_list(file: Path) -> None:
    file.write_text('[scripted]\ninput = 0.3\n["local/llama-4.1"]\ninput = 1\noutput = "2"')
    prices = prices_of(Settings(prices=file))
    assert prices.cost("scripted", USAGE) == Decimal("0.3")
    assert prices.cost("local/llama-4.1", USAGE) == 1
    assert prices.cost("claude-opus-5", USAGE) == LIST_PRICES.cost("claude-opus-5", USAGE)


@pytest.mark.parametrize(
    "content, text",
    [
        (b"[scripted", "prices.toml: "),
        (b"\xff", "prices.toml: "),
        (b"scripted = 3", "prices.toml: prices: model 'scripted' is 3, not a mapping"),
        (b"[scripted]\ninput = -1", "prices.toml: prices: model 'scripted': input is"),
        (b"[new]\ninput = 1", "prices.toml: prices: model 'new' has no output"),
    ],
)
def test_a_wrong_file_is_named(file: Path, content: bytes, text: str) -> None:
    file.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        prices_of(Settings(prices=file))
    assert text in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_of_any_size_is_not_read(file: Path) -> None:
    file.write_bytes(b"#" * 2_000_000)
    with pytest.raises(InvalidValueError, match=r"prices\.toml is larger"):
        prices_of(Settings(prices=file))


@pytest.mark.parametrize("command", ["up", "demo"])
def test_no_pod_starts_with_a_file_that_is_not_there(cortex: Cortex, command: str) -> None:
    ended = cortex(command, env={"CORTEX_PRICES": "none.toml"})
    assert ended.code == 2
    assert ended.err.startswith("error: cannot read the prices from none.toml: No such file")
