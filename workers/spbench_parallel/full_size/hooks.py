"""Hooks on the operators of a stage: each call is computed again as soon as it is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn

from spbench_parallel.full_size.whole_image import NormCheck
from spbench_parallel.full_size.windows import OperatorCall
from spbench_parallel.progress import Progress


class OperatorCheck(Protocol):
    """The check of an operator."""

    def check(self, call: OperatorCall) -> None:
        """Compute a call again, and compare. All ranks that share it call this together."""


class OperatorHooks:
    """The hooks of one operator.

    In training a call is complete once the gradient of its input is known: the operator is given an
    alias of its input, whose gradient is what comes through this operator alone. Ranks that share
    an operator go through their graphs in one order, so that its checks meet.

    Args:
        module: The operator.
        check: Its check.
        learns: Whether gradients will come.
        progress: The progress over the calls that are checked.
        later_weights: Whether the gradients of its weights come after that of its input,
            micro-batch by micro-batch.
        most: How many calls are checked, the first ones; None: all.
    """

    def __init__(
        self,
        module: nn.Module,
        check: OperatorCheck,
        progress: Progress,
        *,
        learns: bool,
        defers_weight_grad: bool = False,
        max_calls: int | None = None,
    ) -> None:
        self._later = defers_weight_grad
        self._waiting = list[OperatorCall]()
        self._most = max_calls
        self._calls = 0
        self._completed = 0
        self._watched = True
        self._check = check
        self._learns = learns
        self._progress = progress
        names = [name for name, _ in module.named_parameters(recurse=False)]
        # By micro-batch: those of a bias may come before those of the weight.
        self._gradients: dict[str, list[torch.Tensor]] = {name: [] for name in names}
        self._before: tuple[torch.Tensor, torch.Tensor] | None = None
        self._handles: list[Any] = [
            module.register_forward_pre_hook(self._enter),
            module.register_forward_hook(self._leave),
        ]
        if learns:
            for name, parameter in module.named_parameters(recurse=False):
                self._handles.append(parameter.register_hook(self._keeper(name)))

    def remove(self) -> None:
        """Take the hooks away, and check what still waits for gradients that have not come."""
        for handle in self._handles:
            handle.remove()
        while self._waiting:
            self._complete(self._waiting.pop(0))

    def _keeper(self, name: str) -> Callable[[torch.Tensor], None]:
        def keep(gradient: torch.Tensor) -> None:
            if self._most is not None:
                if self._completed >= self._most:
                    return
                if not self._later:
                    # Of a call that is not checked: nothing else comes between the two.
                    self._gradients[name].clear()
            self._gradients[name].append(gradient.detach().clone())
            if self._waiting and all(self._gradients.values()):
                self._complete(self._waiting.pop(0))

        return keep

    def _complete(self, call: OperatorCall) -> None:
        """Check a call whose gradients are all there."""
        call.parameter_gradients = {
            name: kept.pop(0) for name, kept in self._gradients.items() if kept
        }
        self._completed += 1
        self._check.check(call)
        call.release()
        self._progress.advance()

    def _enter(self, module: nn.Module, words: tuple[torch.Tensor, ...]) -> Any:
        (pixels,) = words
        self._watched = self._most is None or self._calls < self._most
        self._calls += 1
        if not self._watched:
            return None
        if isinstance(self._check, NormCheck) and self._learns:
            mean = module.running_mean
            variance = module.running_var
            assert isinstance(mean, torch.Tensor)
            assert isinstance(variance, torch.Tensor)
            self._before = mean.clone(), variance.clone()
        if not self._learns:
            return None
        # Images ask for no gradient; a leaf does, and its alias comes last in the backward pass.
        asking = pixels if pixels.requires_grad else pixels.detach().requires_grad_()
        return (asking.view_as(asking),)

    def _leave(self, _: nn.Module, words: tuple[torch.Tensor, ...], found: torch.Tensor) -> None:
        (alias,) = words
        if not self._watched:
            return
        call = OperatorCall(alias.detach(), found.detach())
        if not self._learns:
            with torch._C.DisableTorchFunction():
                self._check.check(call)
            self._progress.advance()
            return
        if self._before is not None and isinstance(self._check, NormCheck):
            self._check.check_statistics(call, self._before)

        def note_output(gradient: torch.Tensor) -> None:
            call.output_gradient = gradient.detach()

        def note_input(gradient: torch.Tensor) -> None:
            call.input_gradient = gradient.detach()
            if self._later:
                self._waiting.append(call)
            else:
                self._complete(call)

        found.register_hook(note_output)
        alias.register_hook(note_input)
