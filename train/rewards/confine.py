"""What the process of the rewards may do, for good: compute, and read files.

Not: open a connection of any kind, write, make, rename or remove a file, start or signal a process, look into one, or
change its limits. Linux alone sees to it, without root: a list of the system calls that computing needs (seccomp), and,
where the kernel has it, Landlock, which also keeps the memory and the environment of other processes from it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 38, 22
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
EPERM, ENOSYS = 1, 38
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
"""Instructions of a filter (linux/bpf_common.h): load a word, jump if it is, jump if it has one of the bits."""
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Where struct seccomp_data has them."""
CLONE_THREAD = 0x10000
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""What Python asks of a file: is it a terminal, how wide, how much is there; wait or not; keep it or not."""
FCNTLS = (0, 1, 2, 3, 4, 1030)
"""A copy of a file, and its flags: none that has another process signalled."""

# Name → number on x86_64 and on aarch64, which has none of the older calls.
CALLS = {
    "read": (0, 63), "readv": (19, 65), "pread64": (17, 67), "write": (1, 64), "writev": (20, 66), "close": (3, 57),
    "fstat": (5, 80), "newfstatat": (262, 79), "statx": (332, 291), "statfs": (137, 43), "fstatfs": (138, 44),
    "lseek": (8, 62), "readlinkat": (267, 78), "faccessat": (269, 48), "faccessat2": (439, 439), "getcwd": (79, 17),
    "getdents64": (217, 61), "fadvise64": (221, 223), "dup": (32, 23), "dup3": (292, 24), "pipe2": (293, 59),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216), "madvise": (28, 233),
    "mincore": (27, 232), "brk": (12, 214), "futex": (202, 98), "membarrier": (324, 283), "rseq": (334, 293),
    "set_robust_list": (273, 99), "set_tid_address": (218, 96), "exit": (60, 93), "exit_group": (231, 94),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "restart_syscall": (219, 128), "setitimer": (38, 103), "getitimer": (36, 102), "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getpgid": (121, 155), "getsid": (124, 156), "getgroups": (115, 158),
    "uname": (63, 160), "sysinfo": (99, 179), "getrusage": (98, 165), "times": (100, 153), "getrandom": (318, 278),
    "getrlimit": (97, 163), "getcpu": (309, 168),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "ppoll": (271, 73), "pselect6": (270, 72),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_pwait": (281, 22), "eventfd2": (290, 19),
}  # fmt: skip
OLDER = {
    "stat": 4, "lstat": 6, "access": 21, "readlink": 89, "poll": 7, "select": 23, "epoll_create": 213,
    "epoll_wait": 232, "pipe": 22, "dup2": 33, "alarm": 37, "time": 201, "getpgrp": 111, "arch_prctl": 158,
}  # fmt: skip
CALLS_IF = {
    "openat": (257, 56),
    "clone": (56, 220),
    "prlimit64": (302, 261),
    "tgkill": (234, 131),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
}
"""Only with some arguments."""
NEWER = {"clone3": 435, "openat2": 437}
"""Not there, so that the C library takes clone and openat, whose arguments a filter can see."""
OPEN = 2
"""The number of openat without a folder on x86_64."""
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine → which of the two numbers is its own, and what the kernel calls it (linux/audit.h)."""
Instruction = tuple[int, int, int, int]


def limit(memory_bytes: int) -> None:
    """No more memory than this, no core file and no capability; it ends with the thread that started it."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(PR_SET_PDEATHSIG, 9)
    none = ctypes.create_string_buffer(24)  # of root's powers: a run that root started has no more than another
    ctypes.CDLL(None).capset(ctypes.create_string_buffer(struct.pack("II", CAPABILITY_VERSION_3, 0), 8), none)


def confine() -> str:
    """Why this machine cannot, or nothing: then it is done, and nothing undoes it."""
    if _prctl(PR_SET_NO_NEW_PRIVS, 1):
        return "the kernel has no PR_SET_NO_NEW_PRIVS"
    program = filter_of(platform.machine(), os.getpid())
    if not program:
        return f"there is no list of system calls for {platform.machine()}"
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    code = ctypes.create_string_buffer(packed, len(packed))
    whole = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    if _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(whole)):
        return f"seccomp: {os.strerror(ctypes.get_errno())}"
    return ""


def hide_other_processes() -> bool:
    """Whether the kernel has Landlock: a rule set without a rule keeps writing and other processes from it."""
    create, restrict = 444, 446  # landlock_create_ruleset, landlock_restrict_self: the same everywhere
    call = ctypes.CDLL(None, use_errno=True).syscall
    writing = 0b1_1111_1111_0010  # every right of its first version, but to execute and to read
    rights = ctypes.create_string_buffer(struct.pack("Q", writing), 8)
    rules = call(create, rights, 8, 0)
    if rules < 0:
        return False
    done = _prctl(PR_SET_NO_NEW_PRIVS, 1) == 0 and call(restrict, rules, 0) == 0
    os.close(rules)
    return done


def filter_of(machine: str, pid: int) -> list[Instruction]:
    """The program that the kernel runs before each system call; empty for a machine that it is not written for."""
    if machine not in MACHINES:
        return []
    which, architecture = MACHINES[machine]
    at = {name: numbers[which] for name, numbers in CALLS.items()} | (OLDER if which == 0 else {})
    deny, allow = (RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)
    program = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), deny, (LOAD, 0, 0, NUMBER)]
    for number in at.values():
        program += [(EQUAL, 0, 1, number), allow]
    for number in NEWER.values():
        program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | ENOSYS)]
    for name, numbers in CALLS_IF.items():
        program += [(EQUAL, 0, len(_condition(name, pid)), numbers[which]), *_condition(name, pid)]
    if which == 0:
        program += [(EQUAL, 0, len(_without(1, WRITES)), OPEN), *_without(1, WRITES)]
    return [*program, deny]


def _condition(name: str, pid: int) -> list[Instruction]:
    """What follows for a call that is allowed with some arguments alone."""
    deny, allow = (RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)
    return {
        "openat": _without(2, WRITES),
        "clone": [_argument(0), (ANY_BIT, 0, 1, CLONE_THREAD), allow, deny],
        "prlimit64": [_argument(2), (EQUAL, 0, 3, 0), _argument(2, high=True), (EQUAL, 0, 1, 0), allow, deny],
        "tgkill": _one_of(0, (pid,)),  # itself, as raise and abort do
        "ioctl": _one_of(1, IOCTLS),
        "fcntl": _one_of(1, FCNTLS),
    }[name]


def _argument(index: int, *, high: bool = False) -> Instruction:
    return (LOAD, 0, 0, ARGUMENTS + 8 * index + 4 * high)


def _without(index: int, bits: int) -> list[Instruction]:
    return [_argument(index), (ANY_BIT, 0, 1, bits), (RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)]


def _one_of(index: int, values: tuple[int, ...]) -> list[Instruction]:
    allowed = [line for value in values for line in ((EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW))]
    return [_argument(index), *allowed, (RETURN, 0, 0, ERRNO | EPERM)]


def _prctl(option: int, *values: int) -> int:
    filled = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    return int(ctypes.CDLL(None, use_errno=True).prctl(option, *filled))
