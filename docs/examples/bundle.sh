#!/usr/bin/env bash
# Wheels for a machine with GPUs that reaches no package registry, but has a Python with torch (CUDA)
# and numpy of its own. Run in the project's root, by `make bundle`; it makes .whl/ (about 26 MB):
#   docs/examples/bundle.sh [PYTHON_VERSION]     3.12 unless told
#   docs/examples/bundle.sh --list               the wheels' names, and nothing else
# There, in the same tree:  . .whl/setup && spbench doctor
set -euo pipefail
version=${1:-3.12}
[ -f constraints.txt ] || { echo "run it in the project's root" >&2; exit 2; }

# torch and what comes with it are the machine's own; tools of development and of other MPIs stay here.
theirs='torch|numpy|sympy|networkx|mpmath|fsspec|filelock|jinja2|markupsafe'
ours='mypy|mypy_extensions|ruff|grimp|import-linter|librt|ast_serialize|pathspec|tomlkit|types-.*'
ours+='|trove-classifiers|mpich|impi-rt|selenium|trio|trio-websocket|textual-serve|aiohttp.*'
mapfile -t names < <(sed -E 's/[[:space:]]*#.*//; /^$/d' constraints.txt |
    grep -viE "^($theirs|$ours)==")

if [ "$version" = --list ]; then
    printf '%s\n' "${names[@]}"
    exit
fi

# pip matches the number of a platform exactly.
platforms=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64
    --platform manylinux1_x86_64)
for number in 39 35 34 31 28 27 24 17 12 5; do
    platforms+=(--platform "manylinux_2_${number}_x86_64")
done
rm -rf .whl
mkdir .whl
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version "$version" --implementation cp "${platforms[@]}" --dest .whl "${names[@]}"
cp docs/examples/setup.sh .whl/setup
du -sh .whl
