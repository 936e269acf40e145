"""The pods beside the one that runs a job."""

import attrs


@attrs.frozen
class OtherPods:
    """They have these tools."""

    names: tuple[str, ...]

    async def tools(self) -> list[str]:
        return list(self.names)
