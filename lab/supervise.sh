#!/usr/bin/env bash
# Keep one host powered: run its container in its cgroups, and again when it asks for a reboot (exit 133).
#   supervise.sh NAMESPACE PID_FILE "CGROUP…" -- systemd-nspawn …
# SIGTERM is the power button: the host shuts down in order. SIGKILL to everything in the cgroup is the power cut.
set -u
namespace=$1 pid_file=$2 cgroups=$3
shift 4
child=
pressed=
trap 'pressed=yes; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM

forget_settings() { # a kernel forgets addresses, routes and firewall at a reboot, a namespace does not
  ip -n "$namespace" -d -o link | awk -F': ' '$2 != "lo" && !/ veth / { sub(/@.*/, "", $2); print $2 }' |
    while read -r made; do ip -n "$namespace" link delete "$made"; done
  ip -n "$namespace" -o link | awk -F': ' '$2 !~ /^lo/ { sub(/@.*/, "", $2); print $2 }' | while read -r nic; do
    ip -n "$namespace" address flush dev "$nic"
    ip -n "$namespace" link set "$nic" down
  done
  ip netns exec "$namespace" nft flush ruleset
}

while [ -z "$pressed" ]; do
  forget_settings
  (
    for cgroup in $cgroups; do echo "$BASHPID" >"$cgroup/cgroup.procs" || exit 1; done
    exec "$@"
  ) &
  child=$!
  echo "$child" >"$pid_file"
  wait "$child"
  status=$?
  while kill -0 "$child" 2>/dev/null; do # a trap ended the first wait
    wait "$child"
    status=$?
  done
  echo "--- container ended with $status at $(date +%T)"
  [ "$status" = 133 ] || break
done
rm -f "$pid_file"
