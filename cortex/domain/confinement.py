"""How a pod confines the programs that agents start."""

from enum import StrEnum
from typing import Final


class Confinement(StrEnum):
    """The means that confines a program, best first; stored with each pod."""

    BUBBLEWRAP = "bubblewrap"
    """Namespaces of its own: the program sees only its folders and the system's programs."""
    LANDLOCK = "landlock"
    """The kernel denies other files; seccomp denies the network."""
    USER = "user"
    """A user id of its own, for root pods."""
    NONE = "none"
    """Nothing works on this machine: no program is started."""
    UNSAFE = "unsafe"
    """The operator lets programs run as the pod's user, with all rights of the pod."""


MEANS: Final = (Confinement.BUBBLEWRAP, Confinement.LANDLOCK, Confinement.USER)
NO_MEANS: Final = "this pod has no means to confine programs: bubblewrap, Landlock or root's rights"
WAY_OUT: Final = (
    "install bubblewrap (`apt-get install bubblewrap`) and restart the pod; "
    "or let programs do all that the pod may do: unsafe_run_command = true"
)
