"""What a person at the controller talks to: the inventory's check, the live view of playbook runs, their receipts."""

import signal
import sys

PROGRAMS = ("console", "console.command_line.without_environment", "console.playbook.ansible_playbook")
"""What a person waits for. Others of this folder run in the background and have their own care of signals."""

_words = getattr(sys, "orig_argv", [])  # an older Python has none, and is told so by make_env.sh
_typed = any(_words[at : at + 2] == ["-m", name] for at in (1, 2) for name in PROGRAMS)
if _typed and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # A Ctrl-C while modules are loaded ends it without a traceback; interrupt.listen_to_sigint() handles later ones.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
