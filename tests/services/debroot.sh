# debroot.sh - sourced by mysql-sid and mariadb.
# Brings Debian binary packages of any suite into a private folder, without
# touching the host's packages: the packages and everything they depend on
# (libc and the dynamic loader too) are downloaded with a private apt state,
# verified by apt, unpacked with `dpkg -x`, and run through the unpacked
# loader.  No host name stands here: the mirror is the one that the host's own
# apt sources use.

say() { printf '%s\n' "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# The Debian mirror (base URI) that this machine's apt uses for its own suite.
# indextargets says nothing before the first `apt-get update`: then the sources
# are read.
debian_mirror() {
  local code uri
  if [ -n "${DEBROOT_MIRROR:-}" ]; then printf '%s\n' "$DEBROOT_MIRROR"; return; fi
  code=$(. /etc/os-release; printf '%s' "${VERSION_CODENAME:-}")
  uri=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 2>/dev/null |
        awk -v c="$code" '$2==c || $2=="sid" || $2=="unstable" || $2=="stable" {print $1; exit}')
  if [ -z "$uri" ]; then          # one-line sources, then deb822 ones
    uri=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
          sed -n 's/^deb  *\(\[[^]]*\] *\)\{0,1\}\([a-z+]*:[^ ]*\)  *\([^ ]*\).*/\2 \3/p' |
          awk -v c="$code" '$2==c {print $1; exit}')
  fi
  if [ -z "$uri" ]; then
    uri=$(awk -v c="$code" '
      function end() { if (hit && u != "" && !off) { print u; exit } u = ""; hit = off = 0 }
      FNR == 1 || /^[ \t]*$/ { end() }
      tolower($1) == "uris:" { u = $2 }
      tolower($1) == "enabled:" && tolower($2) == "no" { off = 1 }
      tolower($1) == "suites:" { for (i = 2; i <= NF; i++) if ($i == c) hit = 1 }
      END { if (hit && u != "" && !off) print u }' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n1)
  fi
  # A host of another family (Ubuntu) has no Debian suite in its sources, but its apt knows a mirror.
  if [ "$(. /etc/os-release; printf '%s' "${ID:-}")" != debian ]; then
    uri=$(sed -n 's/^BaseURI: *//p' /usr/share/python-apt/templates/Debian.info 2>/dev/null | head -n1)
    [ -n "$uri" ] || die "no Debian mirror is known here: apt-get install python-apt-common, or set DEBROOT_MIRROR"
    ls /usr/share/keyrings/debian-archive-keyring.* >/dev/null 2>&1 ||
      die "Debian's signing keys are missing here: apt-get install debian-archive-keyring"
  fi
  [ -n "$uri" ] || die "no Debian mirror found in this machine's apt sources (set DEBROOT_MIRROR)"
  printf '%s\n' "${uri%/}"
}

# debroot_unpack DIR SUITES SKIP_REGEX PACKAGE...
#   SUITES: e.g. "sid" or "bookworm bookworm-updates".  Packages whose names
#   match SKIP_REGEX (anchored) are left out of the closure.
debroot_unpack() {
  local dir=$1 suites=$2 skip=$3; shift 3
  local st=$dir/apt mirror key arch opts suite n
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || die "needs apt-get and dpkg"
  mirror=$(debian_mirror) || exit 1
  key=$(ls /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp 2>/dev/null | head -n1)
  arch=$(dpkg --print-architecture)
  rm -rf "$st" "$dir/debs" "$dir/root.new"
  mkdir -p "$st/lists/partial" "$st/cache/archives/partial" "$dir/debs" "$dir/root.new"
  : > "$st/status"
  for suite in $suites; do
    case $suite in
      *-security) n="${mirror%/debian}/debian-security";;
      *) n=$mirror;;
    esac
    printf 'deb [arch=%s%s] %s %s main\n' "$arch" "${key:+ signed-by=$key}" "$n" "$suite"
  done > "$st/sources.list"
  # apt drops to the user _apt for downloads; run it as the caller instead, so
  # that DIR may lie anywhere.
  opts=(-o "Dir::Etc::sourcelist=$st/sources.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State=$st" -o "Dir::State::lists=$st/lists" -o "Dir::State::status=$st/status"
        -o "Dir::Cache=$st/cache" -o APT::Install-Recommends=0 -o APT::Sandbox::User=
        -o Acquire::Languages=none -o Acquire::Retries=3 -o Debug::NoLocking=1
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
        -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false
        -o Dpkg::Use-Pty=0)
  say "debroot: package lists of: $suites"
  apt-get "${opts[@]}" -qq update >&2 || die "apt-get update failed for $suites"
  # An empty dpkg status makes apt name the whole closure, libc6 included.
  apt-get "${opts[@]}" -qq --no-act install "$@" > "$st/plan" 2> "$st/plan.err" ||
    { cat "$st/plan.err" >&2; die "apt finds no way to install: $*"; }
  awk '$1=="Inst"{v=$3; sub(/^\(/,"",v); print $2"="v}' "$st/plan" |
    grep -vE "^(${skip})=" > "$dir/packages.txt" || die "nothing to unpack"
  # packages wanted for a few files, without what they depend on
  for n in ${DEBROOT_EXTRA:-}; do printf '%s\n' "$n" >> "$dir/packages.txt"; done
  say "debroot: downloading $(wc -l < "$dir/packages.txt") packages"
  ( cd "$dir/debs" && xargs -a "$dir/packages.txt" apt-get "${opts[@]}" -qq download ) >&2 ||
    die "download failed"
  for n in "$dir"/debs/*.deb; do
    dpkg -x "$n" "$dir/root.new" || die "dpkg -x failed on $n"
  done
  rm -rf "$dir/root.new/usr/share/doc" "$dir/root.new/usr/share/man" \
         "$dir/root.new/usr/share/locale" "$dir/root.new/usr/share/lintian"
  [ -n "${DEBROOT_KEEP_DEBS:-}" ] || rm -rf "$dir/debs" "$st"
  rm -rf "$dir/root"; mv "$dir/root.new" "$dir/root"
}

# debroot_wrap DIR BINARY...   (paths inside root, e.g. usr/bin/mysql)
# Writes DIR/bin/NAME, which runs the binary through root's own loader.
# The wrappers find DIR from where they lie, so DIR may be moved.
debroot_wrap() {
  local dir=$1 b; shift
  mkdir -p "$dir/bin"
  for b in "$@"; do
    [ -e "$dir/root/$b" ] || continue
    cat > "$dir/bin/${b##*/}" <<'W'
#!/bin/bash
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
r=$here/root
for ld in "$r"/usr/lib64/ld-linux-*.so.* "$r"/lib64/ld-linux-*.so.* "$r"/usr/lib/ld-linux-*.so.* "$r"/lib/ld-linux-*.so.*; do [ -e "$ld" ] && break; done
ld=$(readlink -f "$ld")
lp=; for d in "$r"/usr/lib/*-linux-gnu "$r"/lib/*-linux-gnu "$r"/usr/lib/*-linux-gnu/*/ "$r"/usr/lib "$r"/lib; do
  case $d in */gconv/|*/engines-3/|*/ossl-modules/|*/perl*/) continue;; esac
  [ -d "$d" ] && lp=$lp${lp:+:}${d%/}; done
export OPENSSL_CONF=${OPENSSL_CONF-/dev/null}
unset LD_PRELOAD LD_LIBRARY_PATH
W
    printf 'exec "$ld" --argv0 "$r/%s" --library-path "$lp" "$r/%s" "$@"\n' "$b" "$b" >> "$dir/bin/${b##*/}"
    chmod 755 "$dir/bin/${b##*/}"
  done
}

# A free TCP port on 127.0.0.1, from the given one upwards.
free_port() {
  local p=$1
  while [ "$p" -lt 65000 ]; do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; then printf '%s\n' "$p"; return; fi
    p=$((p + 1))
  done
  return 1
}
