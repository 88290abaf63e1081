# shellcheck shell=bash
# made_up_node FOLDER TYPE DEVICES: an EC2 instance of that type with eight GPUs and so many EFA devices,
# as far as libfabric, aws-ofi-nccl, hwloc, preflight and made_up_verbs.cc ask: FOLDER is its /sys, and
# FOLDER/topology.xml what hwloc would make of one (HWLOC_XMLFILE), in which GPUs and EFA devices share
# PCIe switches.
made_up_node() {
  local folder=$1 type=$2 devices=$3 switches=8 number=100 device gpu switch
  mkdir -p "$folder"/{bus/pci/devices,class/infiniband,class/infiniband_verbs,class/pci_bus} \
    "$folder"/devices/{pci/pci_bus,virtual/dmi/id} "$folder/drivers/efa"
  echo 6 >"$folder/class/infiniband_verbs/abi_version"
  echo 'Amazon EC2' >"$folder/devices/virtual/dmi/id/sys_vendor"
  echo "$type" >"$folder/devices/virtual/dmi/id/product_name"
  echo i-00000000000000001 >"$folder/devices/virtual/dmi/id/board_asset_tag"
  ((devices == 0 || devices >= switches)) || switches=$devices

  # pci BUS CLASS VENDOR DEVICE: prints its line of the topology; its folder is then $found.
  pci() {
    local name bus
    bus=$(printf '0000:%02x' "$1")
    name=$bus:1b.0
    found=$folder/devices/pci/$name
    mkdir -p "$found" "$folder/devices/pci/pci_bus/$bus"
    ln -s "../../devices/pci/pci_bus/$bus" "$folder/class/pci_bus/$bus"
    ln -s "../../../devices/pci/$name" "$folder/bus/pci/devices/$name"
    echo "0x$3" >"$found/vendor"
    echo '32.0 GT/s PCIe' | tee "$found/current_link_speed" >"$found/max_link_speed"
    echo 16 | tee "$found/current_link_width" >"$found/max_link_width"
    printf '<object type="PCIDev" gp_index="%d" pci_busid="%s" pci_type="%s [%s:%s] [%s:%s] 00" pci_link_speed="31.5"/>\n' \
      $((number++)) "$name" "$2" "$3" "$4" "$3" "$4"
  }
  # efa NUMBER: likewise.
  efa() {
    local name=rdmap$((64 + $1))s27
    pci $((64 + $1)) 0200 1d0f efa1
    ln -s ../../../drivers/efa "$found/driver"
    mkdir "$folder/class/infiniband/$name"
    ln -s "../../../devices/pci/$(basename "$found")" "$folder/class/infiniband/$name/device"
    printf '0000:0000:0000:%04x\n' $((1 + $1)) >"$folder/class/infiniband/$name/node_guid"
  }
  local found sets='cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1"'
  {
    printf '%s\n' '<?xml version="1.0" encoding="UTF-8"?>' '<!DOCTYPE topology SYSTEM "hwloc2.dtd">' \
      '<topology version="2.0">' \
      "<object type=\"Machine\" os_index=\"0\" gp_index=\"1\" $sets allowed_cpuset=\"0x1\" allowed_nodeset=\"0x1\">" \
      "<object type=\"NUMANode\" os_index=\"0\" gp_index=\"2\" $sets local_memory=\"1073741824\"/>" \
      "<object type=\"PU\" os_index=\"0\" gp_index=\"3\" $sets/>" \
      '<object type="Bridge" gp_index="4" bridge_type="0-1" depth="0" bridge_pci="0000:[00-ff]">'
    pci 1 0200 1d0f ec20 # ENA, which every instance has
    for ((switch = 0; switch < switches; ++switch)); do
      printf '<object type="Bridge" gp_index="%d" bridge_type="1-1" depth="1" bridge_pci="0000:[%02x-%02x]" pci_busid="0000:00:%02x.0" pci_type="0604 [1d0f:0200] [0000:0000] 00" pci_link_speed="31.5">\n' \
        $((10 + switch)) $((128 + switch)) $((128 + switch)) $((1 + switch))
      for ((gpu = switch; gpu < 8; gpu += switches)); do pci $((160 + gpu)) 0302 10de 2330; done
      for ((device = switch; device < devices; device += switches)); do efa "$device"; done
      echo '</object>'
    done
    echo '</object></object></topology>'
  } >"$folder/topology.xml"
}

# on_made_up_node FOLDER ROOT [VARIABLE=VALUE...] COMMAND...: runs COMMAND in the tree ROOT as the
# image's user, on the node of FOLDER. Needs root, as mount and chroot do.
on_made_up_node() {
  # shellcheck disable=SC2016 # for the shell that it starts
  unshare --mount bash -ec '
    mount --make-rprivate /
    mount --bind "$1" "$2/sys"
    mount --rbind /dev "$2/dev"
    mount -t proc proc "$2/proc" || mount --rbind /proc "$2/proc"
    exec chroot --userspec=65532:65532 "$2" /usr/bin/env MADE_UP_EFA=/sys \
      HWLOC_XMLFILE=/sys/topology.xml "${@:3}"' - "$@"
}
