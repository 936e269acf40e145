"""Which system calls a confined program is denied: a filter for seccomp.

Written out by hand: the packages that wrap libseccomp need that library on the machine, and none of
them can be imported where the filter is imposed. Denied are calls that look at other processes,
change mounts, make namespaces, load code into the kernel, or hold memory that no process is charged
for.
"""

import errno
import struct
from collections.abc import Sequence
from typing import Final

ARCHITECTURES: Final = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}
"""Column of the tables below, and the kernel's number of the architecture."""
REFUSED: Final = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "fanotify_init": (300, 262),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # Objects without an owning process would count for none, and outlive the program.
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
"""Numbers on x86_64 and on aarch64."""
ABSENT: Final = {"clone3": (435, 435), "memfd_create": (319, 279), "memfd_secret": (447, 447)}
"""Denied as if the kernel did not have them, so that programs take the older way."""
BY_PATH: Final = {
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "removexattrat": (466, 466),
}
"""They change a file by its path, which Landlock does not check."""
OF_OTHERS: Final = {
    "sched_setparam": ((142, 118), 0),
    "sched_setscheduler": ((144, 119), 0),
    "sched_setaffinity": ((203, 122), 0),
    "sched_setattr": ((314, 274), 0),
    "setpriority": ((141, 140), 1),
    "ioprio_set": ((251, 30), 1),
    "utimensat": ((280, 88), 1),
}
"""Denied if this argument is not 0: another process, or a path."""
LIMITS_OF: Final = (302, 261)
"""prlimit64: denied for any other process, since the supervisor may be of the same user."""
NEWEST: Final = 466
"""Later system calls are treated as absent: they have not been reviewed."""
SOCKET, CLONE, IOCTL = (41, 198), (56, 220), (16, 29)
NEW_NAMESPACES: Final = 0x7E02_0080
TERMINAL_INPUT: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
FAMILIES: Final = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16}

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32: Final = 0x4000_0000

Instruction = tuple[int, int, int, int]


def filter_program(machine: str, *, families: Sequence[str], owns_others: bool) -> bytes:
    """Return the seccomp filter in the kernel's format.

    `families` of sockets are allowed; `owns_others`: the program's user owns files outside of its
    folders that it must not touch. Raises `KeyError` for a machine whose system calls are not
    listed.
    """
    column, architecture = ARCHITECTURES[machine]
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    code += [(_AT_LEAST, 0, 1, NEWEST + 1), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    refused = REFUSED | (BY_PATH if owns_others else {})
    for table, number in ((refused, errno.EPERM), (ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            if (nr := numbers[column]) is not None:
                code += [(_EQUAL, 0, 1, nr), (_RETURN, 0, 0, _ERRNO | number)]
    allowed = [(_EQUAL, FAMILIES[each]) for each in families]
    code += _judged(SOCKET[column], 0, allowed, hit=_ALLOW, else_=_ERRNO | errno.EACCES)
    code += _judged(CLONE[column], 0, [(_ANY_BIT, NEW_NAMESPACES)], hit=_ERRNO | errno.EPERM)
    inputs = [(_EQUAL, each) for each in TERMINAL_INPUT]
    code += _judged(IOCTL[column], 1, inputs, hit=_ERRNO | errno.EPERM)
    for numbers, argument in [(LIMITS_OF, 0), *(OF_OTHERS.values() if owns_others else ())]:
        is_zero = [(_EQUAL, 0)]
        deny = _ERRNO | errno.EPERM
        code += _judged(numbers[column], argument, is_zero, hit=_ALLOW, else_=deny)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *each) for each in code)


def _judged(
    nr: int, argument: int, tests: list[tuple[int, int]], *, hit: int, else_: int = _ALLOW
) -> list[Instruction]:
    """Judge one system call by its argument's lower half."""
    body: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument)]
    for kind, value in tests:
        body += [(kind, 0, 1, value), (_RETURN, 0, 0, hit)]
    body.append((_RETURN, 0, 0, else_))
    return [(_EQUAL, 0, len(body), nr), *body]
