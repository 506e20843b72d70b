#!/bin/sh
# The log of this host's simulated kernel; the real dmesg would show that of the machine underneath. Takes no options.
exec journalctl --boot --dmesg --quiet --no-pager --no-hostname --output=short-monotonic
