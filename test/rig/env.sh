# Sourced by the scripts of the rig: paths. ROOT is the repository, BUILD the directory for everything that is built.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
BUILD=$ROOT/build

# The PostgreSQL to use: $PG, or the newest server that is installed with headers, or none yet.
newest_pg() {
  local dir best=
  for dir in /usr/lib/postgresql/*/; do
    [ -x "$dir/bin/postgres" ] && [ -x "$dir/bin/pg_config" ] || continue
    dir=$(basename "$dir")
    if [ -z "$best" ] || [ "$dir" -gt "$best" ]; then best=$dir; fi
  done
  echo "$best"
}
# The release of Debian that has this PostgreSQL. No release has 16, which comes from PyPI with headers and pg_regress, but without OpenSSL (outbox
# brings its own), ICU and contrib.
release_with_pg() {
  case $1 in 15) echo bookworm ;; 17) echo trixie ;; 18) echo forky ;; 19) echo experimental ;; esac
}

# Debian's mirror from which this machine installs.
debian_mirror() {
  apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' |
    awk -v own="$(. /etc/os-release && echo "$VERSION_CODENAME")" '$1 == own && !site { site = $2 } END { print site }'
}

# A file in a folder of build/ that names the state of the files from which the folder was made.
stamp_of() { local name=$1; shift; echo "$BUILD/$name/.made-from.$(cat "$@" | sha256sum | cut -c1-16)"; }
stamp() { # stamp NAME: of a folder that test/rig/install makes
  local rig=$ROOT/test/rig
  case $1 in
    kafka | cloudevents | debezium) stamp_of "$1" "$rig/$1/pom.xml" ;;
    node) stamp_of node "$rig"/node/{package,package-lock}.json ;;
    dclint) stamp_of dclint "$rig/dclint/package.json" ;;
    librdkafka) stamp_of librdkafka "$rig"/librdkafka/{build,source} ;;
    postgresql-16) stamp_of "$1" "$rig/requirements-pg16.txt" ;;
    toolchains) stamp_of "$1" "$rig/requirements-toolchains.txt" ;;
  esac
}
is_up_to_date() { [ -e "$(stamp "$1")" ]; }

# again PROGRAM...: what downloads something gets three tries. A function would run without set -e.
again() {
  local pause
  for pause in 10 30; do
    if "$@"; then return; fi
    echo "it failed and is tried again in $pause s: $*" >&2
    sleep $pause
  done
  "$@"
}
# A folder that takes long to make is made as FOLDER.new, gets a stamp, and then its name: what was interrupted is made anew.
is_made() { [ -e "$1/.made" ]; }
keep() { # keep FOLDER
  touch "$1.new/.made"
  rm -rf "$1"
  mv "$1.new" "$1"
}

# How the tests compile a kind of sink. Other compilers' headers include others of the standard library, and so bring names that are also ours: all
# of them are included here.
KIND_CXXFLAGS="-Wall -Wextra -Werror -include bits/stdc++.h"

PG=${PG:-$(newest_pg)}
# Where what takes long to build is kept, for each version that the machine has had; shared by all checkouts if possible.
cache_folder() {
  local cache=${OUTBOX_RIG_CACHE:-/var/cache/outbox-rig}
  mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || cache=$BUILD
  echo "$cache"
}
# cassert_folder [valgrind]: PostgreSQL with --enable-cassert.
cassert_folder() { echo "$(cache_folder)/postgresql-$(dpkg-query -W -f '${Version}' "postgresql-$PG")-${1:-cassert}"; }
# librdkafka and libcurl, built with ThreadSanitizer.
races_folder() {
  echo "$(cache_folder)/races-gcc-$(g++ -dumpfullversion)-curl-$(dpkg-query -W -f '${Version}' libcurl4-openssl-dev)-$(cat "$ROOT"/test/rig/{races/build,librdkafka/source,debian-source} | sha256sum | cut -c1-8)"
}
# The server's headers of the newest PostgreSQL that Debian has.
headers_folder() { echo "$(cache_folder)/newest-headers"; }
# shellcheck disable=SC2034
PYTHON=$BUILD/venv/bin/python
export ROOT BUILD PG
PG16=$BUILD/postgresql-16/pgserver/pginstall
needs_wheel() { [ "$PG" = 16 ] && [ ! -x /usr/lib/postgresql/16/bin/pg_config ]; }
if needs_wheel; then PG_CONFIG=${PG_CONFIG:-$PG16/bin/pg_config}; fi
if [ -n "$PG" ]; then
  PG_CONFIG=${PG_CONFIG:-/usr/lib/postgresql/$PG/bin/pg_config}
  export PG_CONFIG
fi
if [ -d "$BUILD/toolchains/bin" ]; then PATH=$BUILD/toolchains/bin:$PATH; fi # where the machine's own versions are too old
export PYTHONPATH=$ROOT/test/rig${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1

say() { printf '%s==> %s%s\n' "${BOLD:-}" "$*" "${PLAIN:-}"; }
if [ -t 1 ]; then
  BOLD=$(printf '\033[1m') PLAIN=$(printf '\033[0m')
fi
