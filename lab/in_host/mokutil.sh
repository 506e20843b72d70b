#!/bin/sh
# mokutil, simulated: only --sb-state is answered, from the firmware variables that the lab lays over /sys/firmware.
variable=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
case ${1:-} in
  --sb-state) ;;
  *)
    echo "mokutil (simulated): only --sb-state is answered" >&2
    exit 2
    ;;
esac
if [ ! -e $variable ]; then
  echo "EFI variables are not supported on this system"
  exit 255
fi
case $(od -An -t u1 -j 4 $variable | tr -d ' ') in
  1) echo "SecureBoot enabled" ;;
  *) echo "SecureBoot disabled" ;;
esac
