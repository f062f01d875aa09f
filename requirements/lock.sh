#!/usr/bin/env bash
# Makes edge-router.txt, dev.txt and docs.txt again from the extras of pyproject.toml, and compat.txt from its names, each
# the whole closure, pinned.
#
#   requirements/lock.sh
#
# cloud-cpu.txt is kept by hand: its closure is chosen, not resolved (docs/adr/0003). Versions that it pins are
# constraints here, so that all lists fit into one environment.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -v '^#' requirements/cloud-cpu.txt >"$work/constraints.txt"

lock() { # lock FILE EXTRAS TITLE
    "${PYTHON:-python3.11}" -m venv --clear "$work/venv"
    "$work/venv/bin/pip" install --quiet --constraint "$work/constraints.txt" ".[$2]"
    {
        printf '# %s\n# Made by requirements/lock.sh; every list agrees with the others line by line.\n' "$3"
        # redis needs async-timeout before Python 3.11.3, and the lists serve every Python 3.11.
        { "$work/venv/bin/pip" freeze | grep -v '^isthmus'; echo "async-timeout==5.0.1"; } | LC_ALL=C sort -fu
    } >"$work/list"
    mv "$work/list" "requirements/$1"
}

lock edge-router.txt edge,router,loadtest,otel "Edge agent, router, load tests and traces: the whole closure of isthmus[edge,router,loadtest,otel]."
lock dev.txt edge,router,loadtest,otel,dev "Tools for development and tests, on top of edge-router.txt: the closure of isthmus[…,dev]."
grep -hv '^#' requirements/{edge-router,dev,console}.txt | LC_ALL=C sort -fu >>"$work/constraints.txt"
lock docs.txt docs "What builds the documentation as a site: the closure of isthmus[docs], alone."

# An environment of its own: LlamaIndex needs an older client of OpenAI's than this project is tested with.
"${PYTHON:-python3.11}" -m venv --clear "$work/venv"
"$work/venv/bin/pip" install --quiet langchain-openai llama-index-llms-openai-like
{
    echo "# Clients that others made, for \`make test-compat\`: a whole closure for an environment of its own, because some need"
    echo "# other releases than this project does. Made by requirements/lock.sh."
    "$work/venv/bin/pip" freeze | LC_ALL=C sort -fu
} >"$work/list"
mv "$work/list" requirements/compat.txt
