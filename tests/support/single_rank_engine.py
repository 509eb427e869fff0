"""An engine that trains a small ResNet on one rank."""

import torch
from mpi4py import MPI

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.models.registry import make_model
from spbench_parallel.engine import Engine
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import PRECISIONS

RESNET = make_model("resnet", image_size=(32, 32), num_classes=5, version=1, depth=8, width=4)


def make_engine(device, precision, trains=True):
    plan = ModelPlan(
        RESNET,
        build_layout(1),
        (len(RESNET.layers),),
        split_batch(6, 3),
        device=torch.device(device),
        precision=PRECISIONS[precision],
    )
    images = SyntheticImages(RESNET.image, 5, seed=1, dtype=plan.dtype, device=plan.device)
    engine = Engine(MPI.COMM_SELF, plan, images, TrainingConfig("adam") if trains else None)
    if engine.arithmetic.loss_scale is not None:
        engine.arithmetic.loss_scale.value = 256.0
    return engine, images
