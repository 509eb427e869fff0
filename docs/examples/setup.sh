# Sourced on a machine with GPUs, in the project's root, after `make bundle` elsewhere: . .whl/setup
# Makes an environment over the machine's own torch, once: the bundle's wheels, spbench of this tree.
# `python`, `spbench` and `mpirun` are then the environment's. It lies in .whl/env, and goes with it.
_env=$PWD/.whl/env
_torch=$(python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])') || return 1
if [ ! -x "$_env/bin/spbench" ]; then
    python3 -m venv --without-pip "$_env" || return 1
    _site=$("$_env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    # Behind the environment's own packages: of those that both have, the bundle's count.
    echo "$_torch" >"$_site/zz_torch.pth"
    printf '%s\n' "$PWD/console" "$PWD/workers" >"$_site/spbench_tree.pth"
    python3 -m pip --python "$_env/bin/python" install --quiet --no-index --no-deps --no-compile \
        .whl/*.whl || return 1
    printf '#!/bin/sh\nexec "%s" -m spbench "$@"\n' "$_env/bin/python" >"$_env/bin/spbench"
    chmod +x "$_env/bin/spbench"
fi
export PATH="$_env/bin:$PATH" PYTHONUNBUFFERED=1
python -c 'import torch
gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
print("torch", torch.__version__, gpus or "sees no GPU")'
