"""Images and PDF files: in prompts, messages and results, kept once, put in when they are sent."""

# ruff: noqa: RUF001 -- sizes as people write them

import base64
import os
import zlib
from pathlib import Path
from time import process_time
from typing import Any

import pytest
import trio
from mcp.types import CallToolResult, ImageContent, TextContent
from trio.testing import wait_all_tasks_blocked

from cortex import Context, File, tool
from cortex import job as declared
from cortex.agent.mcp.content import output_of
from cortex.agent.models.anthropic import AnthropicModel
from cortex.agent.models.errors import ModelRejectedError
from cortex.agent.models.files import Room
from cortex.agent.models.google import STANDARD, GoogleModel
from cortex.demo.validation import refusal_of
from cortex.domain.budget import estimate_of
from cortex.domain.errors import InvalidValueError, RejectedError
from cortex.domain.failure import CallFailure
from cortex.domain.file import IMAGE_BYTES_MAX, StoredFile, shown, stored_in
from cortex.domain.image_facts import sniffed
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.prices import LIST_PRICES
from cortex.domain.usage import Usage
from cortex.jobs.llm_generate import llm_generate
from cortex.testing import Cortex, agent
from tests.options.files import pdf, png

PHOTO = png(64, 48)
JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffc0001108003000400301110002") + b"x"
GIF = b"GIF89a" + bytes.fromhex("40003000") + b"\0" * 9
WEBP_VP8X = b"RIFF\0\0\0\0WEBPVP8X" + bytes.fromhex("0a000000000000003f00002f0000")
WEBP_VP8L = b"RIFF\0\0\0\0WEBPVP8L" + bytes.fromhex("000000002f3fc00b00")


# --- what a file is


@pytest.mark.parametrize(
    "content, media_type",
    [
        (PHOTO, "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (WEBP_VP8X, "image/webp"),
        (WEBP_VP8L, "image/webp"),
    ],
    ids=["png", "jpeg", "gif", "webp extended", "webp lossless"],
)
def test_image_is_known_by_its_content(content: bytes, media_type: str) -> None:
    file = File(content, name="a.txt").stored
    assert (file.media_type, file.width, file.height) == (media_type, 64, 48)
    assert StoredFile.of(file.block()) == file
    for end in range(len(content)):
        sniffed(content[:end])  # a cut file raises nothing


@pytest.mark.parametrize("packed", [False, True])
def test_pages_of_a_pdf_are_counted(packed: bool) -> None:
    file = File(pdf(3, packed=packed), name="a.pdf").stored
    assert (file.media_type, file.pages) == ("application/pdf", 3)
    assert str(file).startswith("[a.pdf PDF, 3 pages, ")


@pytest.mark.parametrize(
    "content, message",
    [
        (b"hello", "file 'x' is none that models can see: it begins with b'hello'"),
        (b"", "file 'x' is none that models can see: it begins with b''"),
        (png(8001, 1), "file 'x' is 8001×1, at most 8000 on a side"),
        (
            PHOTO + b"\0" * IMAGE_BYTES_MAX,
            f"file 'x' has {IMAGE_BYTES_MAX + len(PHOTO):,} bytes of PNG, at most 3,932,160",
        ),
        (pdf(1_001), "file 'x' has 1001 pages, at most 1000"),
    ],
)
def test_file_that_no_model_sees_is_named(content: bytes, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        File(content, name="x")
    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize(
    "content",
    [
        b"%PDF-" + b"/Type/ObjStm" * 100_000,
        b"%PDF-" + b"/Type /Page " * 100_000,
        b"%PDF-" + (b"/Type /ObjStm >> stream\n" + zlib.compress(bytes(10**8))) * 9,
        b"\xff\xd8" + b"\xff" * 10**6,
        b"\xff\xd8\xff\xe0\x00\x02" + b"\xff\xe0\x00\x02" * 10**5,
    ],
    ids=["streams", "pages", "bombs", "fill", "segments"],
)
def test_hostile_file_takes_little_time(content: bytes) -> None:
    began = process_time()
    assert sniffed(content) is not None
    assert process_time() - began < 1.0, "0.1 s on any machine of ours"


def test_facts_stand_for_the_content() -> None:
    assert str(File(PHOTO, name="photo.png").stored) == "[image photo.png 64×48 PNG, 88 bytes]"


def test_people_see_facts_in_place_of_references() -> None:
    output = [File(PHOTO, name="a.png").stored.block(), {"more": ["drawn"]}]
    assert shown(output) == ["[image a.png 64×48 PNG, 88 bytes]", {"more": ["drawn"]}]


# --- messages of calls


@declared
async def look(ctx: Context) -> str:
    photo = File(PHOTO, name="photo.png")
    question = [{"role": "user", "content": [photo, "What is it?"]}]
    first = await ctx.llm("look", model="m", messages=question)
    more = [*question, first.as_message(), {"role": "user", "content": [photo, "Sure?"]}]
    return (await ctx.llm("again", model="m", messages=more)).text


def sources(request: ModelRequest) -> list[dict[str, Any]]:
    """The sources of all files in a request, in their order."""
    found: list[dict[str, Any]] = []

    def walk(content: Any) -> None:
        for block in content if isinstance(content, list) else ():
            if "source" in block:
                found.append(block["source"])
            walk(block.get("content"))

    for message in request.messages:
        walk(message["content"])
    return found


async def test_request_has_the_content_and_the_record_a_reference(harness: Cortex) -> None:
    harness.model.script(["A square.", "Yes."])
    run = await harness.run(look)
    assert run.result == "Yes."
    first, second = harness.model.requests
    data = base64.b64encode(PHOTO).decode()
    assert sources(first) == [{"type": "base64", "media_type": "image/png", "data": data}]
    assert sources(second) == sources(first) * 2
    assert refusal_of(first.to_json()) is None
    run.replays()
    assert await harness.crash_everywhere(look) >= 4


async def test_inline_content_is_kept_beside_the_record(harness: Cortex) -> None:
    harness.model.says("A square.")
    source = {"type": "base64", "media_type": "image/gif", "data": base64.b64encode(PHOTO).decode()}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
    run = await harness.run(
        llm_generate, model="m", messages=[{"role": "user", "content": content}]
    )
    assert run.result.text == "A square."
    assert sources(harness.model.requests[0])[0]["media_type"] == "image/png", "by its content"
    source["data"] = "no base64"
    with pytest.raises(
        InvalidValueError, match="payload of 'llm_generate': the data is not base64"
    ):
        await harness.run(llm_generate, model="m", messages=[{"role": "user", "content": content}])


async def test_reference_of_another_job_is_refused(harness: Cortex) -> None:
    harness.model.says("A square.")
    content = [File(PHOTO, name="a.png").stored.block()]
    run = await harness.run(
        llm_generate, model="m", messages=[{"role": "user", "content": content}]
    )
    assert str(run.error).startswith("[image a.png 64×48 PNG, 88 bytes] is not in the record of")


async def test_model_without_images_is_named(harness: Cortex) -> None:
    harness.model.capabilities = Capabilities(images=False)
    run = await harness.run(look)
    assert isinstance(run.error, RejectedError)
    message = "model 'm' takes no images, such as [image photo.png 64×48 PNG, 88 bytes]"
    assert run.error.message == message
    assert run.error.hint == "leave it out, or name a model that takes them"


SMALL, LARGE = (AnthropicModel().capabilities(f"claude-{each}") for each in ("haiku-4-5", "opus-5"))
MANY = [File(png(1, 1, color=number)) for number in range(61)]


@pytest.mark.parametrize(
    "files, capabilities, message",
    [
        (MANY[:51] * 2, SMALL, "the request has 102 images, at most 100 for 'm'"),
        (MANY * 10, LARGE, "the request has 610 images, at most 600 for 'm'"),
        (MANY * 2, LARGE, None),
        (MANY * 11, Capabilities(), None),
        ([File(pdf(60))] * 2, SMALL, "the request's PDF files have 120 pages, at most 100 for 'm'"),
        ([File(pdf(101))], LARGE, None),
        ([*MANY[:20], File(png(2001, 1))], LARGE, "2001 pixels on a side: then at most 2000"),
        ([*MANY[:20], File(png(2001, 1))], Capabilities(), None),
        ([*MANY[:19], File(png(2001, 1))], SMALL, None),
    ],
)
async def test_request_has_as_many_files_as_its_model_takes(
    harness: Cortex, files: list[File], capabilities: Capabilities, message: str | None
) -> None:
    @declared
    async def look_at_all(ctx: Context) -> str:
        question = [{"role": "user", "content": [*files, "What is it?"]}]
        return (await ctx.llm("look", model="m", messages=question)).text

    harness.model.capabilities = capabilities
    harness.model.says("Dots.")
    run = await harness.run(look_at_all)
    assert (run.error is None) == (message is None)
    assert (message or "") in str(run.error)


# --- agents


@tool
async def draw(number: int) -> list[File | str]:
    """Draw a picture."""
    return [File(png(number, 48)), "drawn"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agents.yaml"
    path.write_text("name: viewer\nmodel: m\nsystem: s\ntools: [draw, draw_many, read_file]\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "photo.png").write_bytes(PHOTO)
    (tmp_path / "work" / "paper.pdf").write_bytes(pdf(2))
    (tmp_path / "work" / "notes.txt").write_text("%notes")
    (tmp_path / "work" / "large.png").write_bytes(png(5, 5))
    os.truncate(tmp_path / "work" / "large.png", 3_000_000)
    return path


async def test_agent_sees_the_files_of_its_prompt(harness: Cortex, file: Path) -> None:
    viewer = agent(file, tools=[draw, draw_many])
    inline = {"name": "inline.png", "data": base64.b64encode(png(2, 2)).decode()}
    given = {"folder": str(file.parent / "work"), "files": ["photo.png", "paper.pdf", inline]}
    harness.model.says("A square.")
    run = await harness.run(viewer, prompt="What is it?", **given)
    assert run.steps == ["files", "1 model"]
    content = harness.model.requests[0].messages[0]["content"]
    assert [each["type"] for each in content] == ["image", "document", "image", "text"]
    assert content[1]["title"] == "paper.pdf"
    run.replays()
    assert await harness.crash_everywhere(viewer, prompt="What is it?", **given) >= 4


@pytest.mark.parametrize(
    "files, message",
    [
        (["../agents.yaml"], "'../agents.yaml'"),
        (["none.png"], "'none.png'"),
        (["notes.txt"], "file 'notes.txt' is none that models can see"),
        ([{"data": "%"}], "files: the data is not base64"),
        (["photo.png"] * 21, "files: 21 files, at most 20"),
        (["large.png"] * 20, "files: 32,000,000 bytes in base64 with [image large.png 5×5 PNG, "),
    ],
)
def test_file_that_a_prompt_cannot_have_is_named(
    harness: Cortex, file: Path, files: list[Any], message: str
) -> None:
    folder = str(file.parent / "work")
    viewer = agent(file, tools=[draw, draw_many])
    run = harness.run_sync(viewer, prompt="What is it?", folder=folder, files=files)
    assert message in str(run.error)


def test_path_of_a_prompts_file_needs_a_folder(harness: Cortex, file: Path) -> None:
    run = harness.run_sync(
        agent(file, tools=[draw, draw_many]), prompt="What?", files=["photo.png"]
    )
    assert "files: 'photo.png' needs a folder that it is in" in str(run.error)


async def test_agent_sees_the_files_of_results(harness: Cortex, file: Path) -> None:
    viewer = agent(file, tools=[draw, draw_many])
    read = {"tool": "read_file", "input": {"path": "photo.png"}}
    harness.model.script([{"tool": "draw", "input": {"number": 5}}, read, "Squares."])
    given = {"prompt": "Draw.", "folder": str(file.parent / "work")}
    run = await harness.run(viewer, **given)
    assert run.result.text == "Squares."
    last = harness.model.requests[-1]
    assert len(sources(last)) == 2
    assert refusal_of(last.to_json()) is None
    text = last.messages[2]["content"][0]["content"][0]["text"]
    assert text.startswith("[image 5×48 PNG, ")
    assert text.endswith("\ndrawn")
    run.replays()
    assert await harness.crash_everywhere(viewer, **given) >= 8


@tool
async def animate() -> list[File]:
    """Draw a picture that moves, and one that does not."""
    return [File(GIF), File(PHOTO)]


def test_result_says_that_gemini_takes_no_gif(harness: Cortex, file: Path) -> None:
    """The API answers 400: "Unsupported MIME type: image/gif"."""
    file.write_text(file.read_text().replace("draw_many", "animate"))
    harness.model.capabilities = GoogleModel(STANDARD).capabilities("gemini-3-pro")
    harness.model.script([{"tool": "animate", "input": {}}, "A square."])
    harness.run_sync(agent(file, tools=[draw, animate]), prompt="Draw.")
    seen = harness.model.requests[-1].messages[2]["content"][0]["content"]
    assert [each["type"] for each in seen] == ["text", "text", "image"]
    assert seen[1]["text"] == "[image 64×48 GIF, 19 bytes]: this model takes no GIF images"


async def test_result_says_what_a_model_cannot_see(harness: Cortex, file: Path) -> None:
    harness.model.capabilities = Capabilities(images=False)
    harness.model.script([{"tool": "draw", "input": {"number": 5}}, "I cannot see it."])
    run = await harness.run(agent(file, tools=[draw, draw_many]), prompt="Draw.")
    assert run.result.text == "I cannot see it."
    result = harness.model.requests[-1].messages[2]["content"][0]["content"]
    assert result[1]["type"] == "text"
    assert result[1]["text"].endswith(": this model takes no images")


def refused() -> ModelRejectedError:
    facts = CallFailure(model="m", host="h", type="invalid_request_error", status=400)
    return ModelRejectedError(facts, "Could not process image")


async def test_agent_goes_on_without_an_image_that_the_api_refuses(
    harness: Cortex, file: Path
) -> None:
    viewer = agent(file, tools=[draw, draw_many])
    use = {"tool": "draw", "input": {"number": 5}}
    harness.model.script([use, refused(), use, refused(), use, "Squares."])
    run = await harness.run(viewer, prompt="Draw.")
    assert (run.error, run.result.text) == (None, "Squares.")
    assert run.steps[2:5] == ["2 without files", "2 model, without files", "2 draw"]
    last = harness.model.requests[-1]
    assert len(sources(last)) == 1, "the last one, which was taken"
    text = last.messages[2]["content"][0]["content"]
    assert text.endswith("[left out, because the model's API refused the request with it]")
    run.replays()


async def test_request_that_is_refused_for_another_reason_fails(
    harness: Cortex, file: Path
) -> None:
    viewer = agent(file, tools=[draw, draw_many])
    use = {"tool": "draw", "input": {"number": 5}}
    harness.model.script([use, refused(), refused()])
    run = await harness.run(viewer, prompt="Draw.")
    assert str(run.error).endswith("Could not process image")
    harness.model.script([refused()])
    given = {"folder": str(file.parent / "work"), "files": ["photo.png"]}
    run = await harness.run(viewer, prompt="What is it?", **given)
    assert str(run.error).endswith("Could not process image"), "a person gave it, and is told"


@tool
async def draw_many(count: int) -> list[File]:
    """Draw pictures."""
    return [File(png(1, 1, color=number)) for number in range(count)]


async def test_agent_forgets_its_oldest_files_when_there_are_too_many(
    harness: Cortex, file: Path
) -> None:
    viewer = agent(file, tools=[draw, draw_many])
    harness.model.capabilities = SMALL
    many = {"tool": "draw_many", "input": {"count": 60}}
    harness.model.script([many, many, "Dots."])
    run = await harness.run(viewer, prompt="Draw.")
    assert run.result.text == "Dots."
    assert "3 shorten" in run.steps
    last = harness.model.requests[-1]
    assert len(sources(last)) == 60
    assert "not shown any more" in last.messages[2]["content"][0]["content"]
    run.replays()


async def test_results_of_the_providers_own_tools_stay_as_they_are(
    harness: Cortex, file: Path
) -> None:
    """Those of fetched pages and of code are objects, and not lists."""
    page = {"type": "web_fetch_result", "content": {"type": "document", "source": {"type": "text"}}}
    fetched = {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_1", "content": page}
    asked = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {}}
    draws = {"type": "tool_use", "id": "toolu_1", "name": "draw", "input": {"number": 5}}
    answer = ModelResponse(
        model="m",
        content=(asked, fetched, draws),
        stop_reason="tool_use",
        usage=Usage(),
        message_id="m1",
    )
    for images in (True, False):
        harness.model.capabilities = Capabilities(images=images)
        harness.model.script([answer, "Squares."])
        await harness.run(agent(file, tools=[draw, draw_many]), prompt="Draw.")
        assert harness.model.requests[-1].messages[1]["content"] == [asked, fetched, draws]


def test_images_of_a_servers_structured_result_are_files() -> None:
    data = base64.b64encode(PHOTO).decode()
    image = ImageContent(type="image", data=data, mime_type="image/png")
    text = TextContent(type="text", text='{"title": "Home"}')
    result = CallToolResult(content=[text, image], structured_content={"title": "Home"})
    assert output_of(result) == [{"title": "Home"}, File(PHOTO)]


# --- memory and money


async def test_room_is_given_in_turn_and_never_exceeded() -> None:
    room, order = Room(100), list[int]()
    ends = [trio.Event() for _ in range(5)]
    impatient = trio.CancelScope()

    async def use(number: int, size: int, scope: trio.CancelScope) -> None:
        with scope:
            async with room.taken(size):
                order.append(number)
                await ends[number].wait()

    async with trio.open_nursery() as nursery:
        for number, size in enumerate((60, 500, 70, 40, 60)):
            scope = impatient if number == 2 else trio.CancelScope()
            nursery.start_soon(use, number, size, scope)
            await wait_all_tasks_blocked()
        assert order == [0], "none overtakes one that waits for all of it"
        impatient.cancel()
        ends[0].set()
        await wait_all_tasks_blocked()
        assert order == [0, 1]
        ends[1].set()
        await wait_all_tasks_blocked()
        assert (order[:2], {*order[2:]}) == ([0, 1], {3, 4})
        ends[3].set()
        ends[4].set()
    async with room.taken(100):
        pass


def test_estimate_counts_files_and_not_their_bytes() -> None:
    content = [File(PHOTO).stored.block(), File(pdf(3)).stored.block()]
    request = ModelRequest(
        model="claude-sonnet-5", messages=({"role": "user", "content": content},), max_tokens=10
    )
    estimate = estimate_of(request, LIST_PRICES)
    assert 12_000 < estimate.input_tokens < 13_000
    assert 29_000 < estimate.tokens < 30_000
    assert len(list(stored_in(request.messages))) == 2
