#!/usr/bin/env bash
# Makes the virtual environment and installs pinned lists and the project into it.
#
#   requirements/install.sh LIST...      LIST is edge-router, cloud-cpu, dev, console or docs;
#   VENV=DIR requirements/install.sh compat      compat is an environment of its own, without the project
#
# What is installed already costs nothing, and an interrupted run goes on where it stopped. Every failure is one line.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${VENV:-.venv}
stamps=$venv/.stamps
pip_version=26.3
# MiB that a list takes once installed, with room for the downloads.
declare -A room=([edge-router]=700 [cloud-cpu]=5000 [dev]=900 [console]=250 [docs]=250 [compat]=400)

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3.12 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 or 3.12 is needed and was not found. Install it, or name it: make PYTHON=/path/to/python3.11 …"
}

make_venv() {
    [ -x "$venv/bin/pip" ] && return
    local python
    python=$(find_python)
    echo "Making $venv with $("$python" --version)"
    rm -rf "$venv"
    "$python" -m venv "$venv" >"${TMPDIR:-/tmp}/isthmus-venv.$$" 2>&1 || {
        rm -rf "$venv"
        fail "$python has no working venv module. On Debian: apt install $(basename "$python")-venv"
    }
    rm -f "${TMPDIR:-/tmp}/isthmus-venv.$$"
    # The pip that comes with Python takes a download that broke off for one with a wrong hash, and cannot resume it.
    run_pip pip 0 "pip==$pip_version"
}

check_room() {
    local free
    free=$(df -Pm . | awk 'NR == 2 { print $4 }')
    [ "$free" -ge "$2" ] || fail "The disk has $free MiB free here; installing $1 takes $2 MiB."
}

# Why pip failed, in one line, from its own output.
reason() {
    if grep -qi 'no space left on device' "$1"; then
        echo "the disk is full"
    elif grep -qiE 'timed out|timeout|connection|incompleteread|max retries|name resolution|broken pipe|hash.*mismatch' "$1"; then
        echo "the download was interrupted; run the same command again, it goes on where it stopped"
    else
        grep -E '^ERROR' "$1" | head -n 1 | cut -c 1-300 | sed 's/^ERROR: //' | grep . || echo "pip failed"
    fi
}

# run_pip NAME PACKAGES ARGUMENTS...: pip with a short progress; the whole output is kept in a file.
run_pip() {
    local name=$1 total=$2 log=$venv/install-$1.log
    shift 2
    if ! "$venv/bin/python" -m pip install --disable-pip-version-check --no-input "$@" 2>&1 | tee "$log" | awk -v total="$total" '
            /^ *Collecting / { n++; if (total && n % 10 == 0) { printf "  %d of %d packages\n", n, total; fflush() } }
            /^Installing collected/ { print "  unpacking"; fflush() }'; then
        fail "Installing $name failed: $(reason "$log") (log: $log)"
    fi
}

install_list() {
    local name=$1 file=requirements/$1.txt stamp count
    [ -f "$file" ] || fail "There is no list $file."
    stamp=$stamps/$name-$(sha256sum "$file" | cut -c 1-16)
    [ -f "$stamp" ] && return
    check_room "$name" "${room[$name]:-500}"
    if [ "$name" = cloud-cpu ] && ! command -v c++ g++ clang++ >/dev/null; then
        fail "The cloud tier needs a C++ compiler. On Debian: apt install g++. Without the cloud: make up TIERS=edge"
    fi
    count=$(grep -cE '^[A-Za-z0-9]' "$file")
    echo "Installing $name: $count packages"
    # Every list is a whole closure, so nothing is resolved again; for cloud-cpu that would add 2 GB (docs/adr/0003).
    # Compiling every module at once takes longer than all the rest: what gets imported is compiled then.
    run_pip "$name" "$count" --no-deps --no-compile -r "$file"
    rm -f "$stamps/$name"-*
    touch "$stamp"
}

install_project() {
    local stamp
    stamp=$stamps/project-$(sha256sum pyproject.toml | cut -c 1-16)
    [ -f "$stamp" ] && return
    run_pip isthmus 0 --no-deps -e .
    rm -f "$stamps"/project-*
    touch "$stamp"
}

make_venv
mkdir -p "$stamps"
for list in "$@"; do
    install_list "$list"
done
[ "$*" = compat ] || install_project
