"""Ansible's ansible-playbook, which a Ctrl-C ends without a traceback also while it is loaded (console/__init__.py)."""

import sys

from ansible.cli.playbook import main

from console.playbook.interrupt import listen_to_sigint

if __name__ == "__main__":
    listen_to_sigint()
    main(["ansible-playbook", *sys.argv[1:]])
