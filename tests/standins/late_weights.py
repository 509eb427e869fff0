"""The weights of mirrored stages on the device that runs late."""

from spbench_parallel.training.master_comm import FlatWeights
from standins.late_device import NAME


class LateFlatWeights(FlatWeights):
    """The parameters of a stage in one tensor, also on the late device.

    A parameter of this device has its values in `elem`, which an assignment to ``data`` does not
    change.
    """

    def __init__(self, module):
        super().__init__(module)
        parameters = list(module.parameters())
        parts = self.flat_tensor.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            if parameter.device.type == NAME:
                parameter.elem = part.view(parameter.shape).elem


def take_late_weights(master_comm):
    """Let mirrored stages put the parameters of the late device into one tensor."""
    master_comm.FlatWeights = LateFlatWeights
