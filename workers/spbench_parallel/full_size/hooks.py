"""Hooks on the operators of a stage, which compute complete calls again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from spbench_parallel.full_size.calls import OperatorCall, OperatorCheck
from spbench_parallel.full_size.norms import NormCheck
from spbench_parallel.progress import Progress


class OperatorHooks:
    """The hooks of one operator.

    In training, a call is complete when the gradient of its input is known. The operator gets an
    alias of its input, and the gradient of the alias is the one through this operator only. Ranks
    that share an operator go through their graphs in the same order, so that its checks, which
    communicate, match.

    Args:
        module: The operator.
        check: Its check.
        learns: Whether gradients will follow.
        progress: The progress over the checked calls.
        defers_weight_grad: Whether the gradients of its weights come after that of its input,
            micro-batch by micro-batch.
        max_calls: The number of first calls to check; None for all.
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
        self._defers_weight_grad = defers_weight_grad
        self._calls_without_weight_grad = list[OperatorCall]()
        self._max_calls = max_calls
        self._call_count = 0
        self._completed_count = 0
        self._checks_call = True
        self._check = check
        self._learns = learns
        self._progress = progress
        names = [name for name, _ in module.named_parameters(recurse=False)]
        # By micro-batch: those of a bias may come before those of the weight.
        self._weight_gradients: dict[str, list[torch.Tensor]] = {name: [] for name in names}
        self._old_statistics: tuple[torch.Tensor, torch.Tensor] | None = None
        self._handles: list[Any] = [
            module.register_forward_pre_hook(self._enter),
            module.register_forward_hook(self._leave),
        ]
        if learns:
            for name, parameter in module.named_parameters(recurse=False):
                self._handles.append(parameter.register_hook(self._create_keeper(name)))

    def remove(self) -> None:
        """Remove the hooks, and check the calls that still wait for gradients."""
        for handle in self._handles:
            handle.remove()
        while self._calls_without_weight_grad:
            self._complete(self._calls_without_weight_grad.pop(0))

    def _create_keeper(self, name: str) -> Callable[[torch.Tensor], None]:
        def keep(gradient: torch.Tensor) -> None:
            if self._max_calls is not None:
                if self._completed_count >= self._max_calls:
                    return
                if not self._defers_weight_grad:
                    # Gradients of an earlier, unchecked call; the next ones belong to this call.
                    self._weight_gradients[name].clear()
            self._weight_gradients[name].append(gradient.detach().clone())
            if self._calls_without_weight_grad and all(self._weight_gradients.values()):
                self._complete(self._calls_without_weight_grad.pop(0))

        return keep

    def _complete(self, call: OperatorCall) -> None:
        """Check a call with complete gradients."""
        call.parameter_gradients = {
            name: gradients.pop(0)
            for name, gradients in self._weight_gradients.items()
            if gradients
        }
        self._completed_count += 1
        self._check.check(call)
        call.release()
        self._progress.advance()

    def _enter(self, module: nn.Module, args: tuple[torch.Tensor, ...]) -> Any:
        (pixels,) = args
        self._checks_call = self._max_calls is None or self._call_count < self._max_calls
        self._call_count += 1
        if not self._checks_call:
            return None
        if isinstance(self._check, NormCheck) and self._learns:
            mean = module.running_mean
            variance = module.running_var
            assert isinstance(mean, torch.Tensor)
            assert isinstance(variance, torch.Tensor)
            self._old_statistics = mean.clone(), variance.clone()
        if not self._learns:
            return None
        # Images require no gradient. A leaf does, and its alias comes last in the backward pass.
        source = pixels if pixels.requires_grad else pixels.detach().requires_grad_()
        return (source.view_as(source),)

    def _leave(self, _: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        (alias,) = args
        if not self._checks_call:
            return
        call = OperatorCall(alias.detach(), output.detach())
        if not self._learns:
            with torch._C.DisableTorchFunction():
                self._check.check(call)
            self._progress.advance()
            return
        if self._old_statistics is not None and isinstance(self._check, NormCheck):
            self._check.check_statistics(call, self._old_statistics)

        def note_output(gradient: torch.Tensor) -> None:
            call.output_gradient = gradient.detach()

        def note_input(gradient: torch.Tensor) -> None:
            call.input_gradient = gradient.detach()
            if self._defers_weight_grad:
                self._calls_without_weight_grad.append(call)
            else:
                self._complete(call)

        output.register_hook(note_output)
        alias.register_hook(note_input)
