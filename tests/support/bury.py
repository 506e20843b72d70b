"""A command, and then the end of whatever it has left: python -m tests.support.bury COMMAND…

What `kubectl exec` had started in a pod comes to whoever takes orphans once its client is ended. A namespace whose dead
nobody buries does not end, and the pod with it: a process of pytest may take orphans, and buries none.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

from tests.gpu.process import children
from train.cluster.attach_to_agent import PR_SET_CHILD_SUBREAPER, prctl


def main(command: list[str]) -> int:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    process = subprocess.Popen(command)
    pid, status = os.wait()
    while pid != process.pid:
        pid, status = os.wait()
    with suppress(ChildProcessError):
        while True:
            for left in children():
                os.kill(left, signal.SIGKILL)
            os.wait()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
