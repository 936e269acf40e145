"""Files inside payloads, as people see them."""

import base64
import json

from cortex.view.inline_files import without_content
from tests.options.files import png

CONTENT = png(40, 30) + bytes(4000)


def test_facts_stand_in_place_of_a_file() -> None:
    text = json.dumps({"files": [{"data": base64.b64encode(CONTENT).decode(), "name": "a.png"}]})
    (file,) = json.loads(without_content(text))["files"]
    assert file == {"data": f"[image 40×30 PNG, {len(CONTENT) / 1000:.0f} kB]", "name": "a.png"}  # noqa: RUF001


def test_a_file_whose_json_is_cut_is_no_raw_text_either() -> None:
    text = json.dumps({"data": base64.b64encode(CONTENT).decode()})[:1001]
    assert without_content(text) == '{"data": "[image 40×30 PNG, 741 bytes or more]'  # noqa: RUF001


def test_other_text_stays_as_it_is() -> None:
    text = json.dumps({"data": "word" * 100, "image": base64.b64encode(CONTENT).decode()})
    assert without_content(text) == text
