#!/bin/sh
# prime-select, simulated: its choice takes hold at the next boot, when the lab's hardware reads it.
#   prime-select query | intel | nvidia | on-demand
chosen=/etc/prime-discrete
blacklist=/lib/modprobe.d/blacklist-nvidia.conf
remove=/lib/udev/rules.d/50-pm-nvidia.rules
case ${1:-} in
  query)
    case $(cat $chosen 2> /dev/null) in
      on) echo nvidia ;;
      off) echo intel ;;
      *) echo on-demand ;;
    esac
    exit
    ;;
  intel) word=off ;;
  nvidia) word=on ;;
  on-demand) word=on-demand ;;
  *)
    echo "Usage: prime-select nvidia|intel|on-demand|query" >&2
    exit 1
    ;;
esac
if [ "$(id -u)" != 0 ]; then
  echo "Error: please run this program as root" >&2
  exit 1
fi
echo "Info: selecting the $1 profile"
echo $word > $chosen
if [ $word = off ]; then
  mkdir -p "${blacklist%/*}" "${remove%/*}"
  printf 'blacklist nvidia\nalias nvidia off\n' > $blacklist
  echo 'ACTION=="add", SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{remove}="1"' > $remove
else
  rm -f $blacklist $remove
fi
