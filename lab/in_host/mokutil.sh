#!/bin/sh
# mokutil, simulated: --sb-state from the firmware variables that the lab lays over /sys/firmware, --test-key from what
# the lab's hardware says of its owner's key.
variable=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
case ${1:-} in
  --sb-state) ;;
  --test-key)
    if grep -q '"own_key": true' /run/simulated-hardware/condition.json; then
      echo "$2 is already enrolled"
    else
      echo "$2 is not enrolled"
    fi
    exit
    ;;
  *)
    echo "mokutil (simulated): only --sb-state and --test-key are answered" >&2
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
