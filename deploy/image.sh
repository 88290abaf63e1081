#!/usr/bin/env bash
# Lays out the file system of the service's image: the program without its symbols, the shared
# libraries that it loads, the authorities that it may meet, a user, and what all of that is.
#
#   image.sh PROGRAM FOLDER   on the Debian that PROGRAM was built on
#
# No shell, no package manager, nothing to write to.
set -euo pipefail
program=$1 into=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
documents=$into/usr/share/doc

mkdir -p "$into/usr/local/bin" "$into/etc/ssl/certs" "$documents/muster"
strip --strip-all -o "$into/usr/local/bin/muster" "$program"
chmod 755 "$into/usr/local/bin/muster"

# PACKAGE of each file that is copied, and those whose headers are compiled in.
packages=(libboost1.81-dev libcli11-dev nlohmann-json3-dev ca-certificates)

# owner FILE: before /usr was merged it may have stood in /lib.
owner() {
  { dpkg-query --search "$1" || dpkg-query --search "${1#/usr}"; } 2>/dev/null |
    sed -n '1s/[:,].*//p'
}

missing=$(ldd "$program" | grep 'not found' || true)
if [[ -n $missing ]]; then
  echo "$missing" >&2
  exit 1
fi
while read -r found; do
  file=$(realpath "$found")
  package=$(owner "$file")
  [[ -n $package ]] || { echo "$file is of no package" >&2; exit 1; }
  packages+=("$package")
  case $found in
    # The loader is named by the program itself.
    */ld-linux*) install -D -m 755 "$file" "$into$found" ;;
    *) install -D -m 644 "$file" "$into$(dirname "$file")/$(basename "$found")" ;;
  esac
done < <(ldd "$program" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^\s*\(\/[^ ]*\) (.*/\1/p' | sort -u)

install -m 644 /etc/ssl/certs/ca-certificates.crt "$into/etc/ssl/certs/"
printf 'root:x:0:0:root:/:/nonexistent\nmuster:x:65532:65532:muster:/:/nonexistent\n' >"$into/etc/passwd"
printf 'root:x:0:\nmuster:x:65532:\n' >"$into/etc/group"
printf 'hosts: files dns\n' >"$into/etc/nsswitch.conf"
install -m 644 "$here/../LICENSE" "$here/../NOTICE" "$documents/muster/"

version=$(sed -n 's/^project(muster VERSION \([0-9.]*\).*/\1/p' "$here/../CMakeLists.txt")
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
for package in "${packages[@]}"; do
  install -D -m 644 "/usr/share/doc/$package/copyright" "$documents/$package/copyright"
done

# SPDX 2.3. Names and versions of Debian hold nothing that JSON would have to escape.
about() { dpkg-query --show --showformat="\${$2}" "$1"; }
part() { # ID NAME VERSION [PURL]
  printf '{"SPDXID":"SPDXRef-%s","name":"%s","versionInfo":"%s","downloadLocation":"NOASSERTION","filesAnalyzed":false,"licenseConcluded":"NOASSERTION","licenseDeclared":"%s","copyrightText":"NOASSERTION"' \
    "$1" "$2" "$3" "${5:-NOASSERTION}"
  if [[ -n ${4:-} ]]; then
    printf ',"externalRefs":[{"referenceCategory":"PACKAGE-MANAGER","referenceType":"purl","referenceLocator":"%s"}]' "$4"
  fi
  printf '}'
}
digest=$(sha256sum "$into/usr/local/bin/muster" | cut -d ' ' -f 1)
. /etc/os-release
{
  printf '{"spdxVersion":"SPDX-2.3","dataLicense":"CC0-1.0","SPDXID":"SPDXRef-DOCUMENT","name":"muster-%s",' "$version"
  printf '"documentNamespace":"https://muster.dev/spdx/muster-%s-%s",' "$version" "$digest"
  printf '"creationInfo":{"created":"%s","creators":["Tool: deploy/image.sh"]},\n"packages":[\n' "$(date --utc +%Y-%m-%dT%H:%M:%SZ)"
  part muster muster "$version" "" Apache-2.0
  for package in "${packages[@]}"; do
    revision=$(about "$package" Version)
    printf ',\n'
    part "deb-${package//+/-plus}" "$package" "$revision" \
      "pkg:deb/debian/${package//+/%2B}@${revision//+/%2B}?arch=$(about "$package" Architecture)&distro=debian-$VERSION_ID"
  done
  printf '\n],\n"relationships":[\n{"spdxElementId":"SPDXRef-DOCUMENT","relationshipType":"DESCRIBES","relatedSpdxElement":"SPDXRef-muster"}'
  for package in "${packages[@]}"; do
    printf ',\n{"spdxElementId":"SPDXRef-muster","relationshipType":"DEPENDS_ON","relatedSpdxElement":"SPDXRef-deb-%s"}' "${package//+/-plus}"
  done
  printf '\n]}\n'
} >"$documents/muster/sbom.spdx.json"
