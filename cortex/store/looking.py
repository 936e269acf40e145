"""Connections of those who only look: the database itself refuses what they might change.

That guards against mistakes, not against who means to: a session may take its login's own role
again (`SET ROLE NONE`), or unset its setting. Who must not be able to change anything gets a login
that is a member of the reader's role only.
"""

import attrs

from cortex.store.database import READER_ROLE, Profile
from cortex.store.dedicated import Dedicated


async def only_looking(profile: Profile) -> Profile:
    """Return a profile whose sessions change nothing as long as they stay as they begin.

    In the reader's role, where this login may take it. Else, in the profile's own, with sessions
    that are set to read only. Connects once to find out; raises `CortexError`s.
    """
    session = Dedicated(attrs.evolve(profile, role=None), on_lost=lambda: None)
    try:
        await session.open()
        is_reader = bool(await session.fetch("sessions.may_look_as", READER_ROLE))
        await session.close()
    finally:
        session.cut()
    if is_reader:
        return attrs.evolve(profile, role=READER_ROLE)
    return attrs.evolve(profile, is_read_only=True)
