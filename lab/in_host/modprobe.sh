#!/bin/sh
# Asks the lab's hardware to load a simulated module; every other module goes to the real modprobe.
exec /usr/lib/motley-lab/hardware modprobe "$@"
