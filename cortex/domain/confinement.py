"""How a pod confines the programs that agents start."""

from enum import StrEnum
from typing import Final


class Confinement(StrEnum):
    """What keeps a program in its place, best first; stored with each pod."""

    BUBBLEWRAP = "bubblewrap"
    """Namespaces of its own: it sees its folders and the system's programs, and nothing else."""
    LANDLOCK = "landlock"
    """The kernel refuses other files; seccomp refuses the network."""
    USER = "user"
    """A user id of its own, for pods of root."""
    NONE = "none"
    """Nothing works here: no program is started."""
    UNSAFE = "unsafe"
    """The operator let programs run as the pod's user, free to do what the pod can do."""


MEANS: Final = (Confinement.BUBBLEWRAP, Confinement.LANDLOCK, Confinement.USER)
NO_MEANS: Final = "this pod has no means to confine programs: bubblewrap, Landlock or root's rights"
WAY_OUT: Final = (
    "install bubblewrap (`apt-get install bubblewrap`) and restart the pod; "
    "or let programs do all that the pod may do: unsafe_run_command = true"
)
