#!/bin/sh
# Run as the first process of new namespaces. POD_* say what the container gets; the arguments are
# its environment, NAME=VALUE each, and then its command. $0 is the pod's name.
set -e

ip link set lo up
ip link add eth0 type veth peer name "$POD_LINK" netns "$POD_NETWORK"
nsenter --net="$POD_NETWORK" ip link set "$POD_LINK" master "$POD_BRIDGE" up
ip address add "$POD_ADDRESS" dev eth0
ip link set eth0 up
hostname "$0"

mount --bind "$POD_FOLDER/hosts" /etc/hosts
mount --bind "$POD_FOLDER/resolv.conf" /etc/resolv.conf
echo "$POD_MOUNTS" | while read -r folder && read -r path; do
  mount --bind "$folder" "$path"
done

# Devices of its own, so that there can be a /dev/termination-log.
dev=$POD_FOLDER/dev
mount -t tmpfs dev "$dev"
for device in null zero full random urandom; do
  : >"$dev/$device"
  mount --bind "/dev/$device" "$dev/$device"
done
: >"$dev/termination-log"
mount --bind "$POD_FOLDER/termination-log" "$dev/termination-log"
mkdir "$dev/shm"
mount -t tmpfs shm "$dev/shm"
ln -s /proc/self/fd "$dev/fd"
mount --move "$dev" /dev

mount -t proc proc /proc
# In exec form: the command becomes the first process.
exec env -i -- "$@"
