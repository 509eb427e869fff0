"""Optimizers: torch's update rules, for lists of tensors.

`torch.optim.Optimizer` would import torch's compiler, which takes two seconds per rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from spbench_parallel.plan import TrainingConfig

BETAS = (0.9, 0.999)
"""Coefficients of the running averages of Adam and AdamW; torch's defaults."""
EPSILON = 1e-8
"""The term of Adam and AdamW that avoids division by zero; torch's default."""
OPTIMIZERS = ("sgd", "adam", "adamw")

State = dict[str, torch.Tensor]


class Optimizer:
    """An optimizer that updates parameters from their gradients.

    Args:
        training: The optimizer and its settings.
        parameters: The parameters; each has a gradient at every step.

    Attributes:
        learning_rate: The learning rate of the next step.
        states: The state of each parameter, by the names of `torch.optim`; empty before the first
            step.

    Raises:
        ValueError: The optimizer is unknown.
    """

    def __init__(self, training: TrainingConfig, parameters: Sequence[nn.Parameter]) -> None:
        if training.optimizer not in OPTIMIZERS:
            raise ValueError(f"there is no optimizer {training.optimizer!r}")
        self.learning_rate = training.learning_rate
        self.states: dict[nn.Parameter, State] = {}
        self._training = training
        self._parameters = list(parameters)

    @torch.no_grad()
    def step(self) -> None:
        """Update all parameters once."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if not gradients:
            return
        if self._training.optimizer == "sgd":
            self._sgd(gradients)
        else:
            self._adam(gradients)

    def _sgd(self, gradients: list[torch.Tensor]) -> None:
        buffers = [self._state(parameter).get("momentum_buffer") for parameter in self._parameters]
        sgd(
            list(self._parameters),
            gradients,
            buffers,
            foreach=True,
            lr=self.learning_rate,
            weight_decay=self._training.weight_decay,
            momentum=self._training.momentum,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for parameter, buffer in zip(self._parameters, buffers, strict=True):
            if buffer is not None:  # torch creates none without momentum
                self._state(parameter)["momentum_buffer"] = buffer

    def _adam(self, gradients: list[torch.Tensor]) -> None:
        states = [self._adam_state(parameter) for parameter in self._parameters]
        rule = adam if self._training.optimizer == "adam" else adamw
        rule(
            list(self._parameters),
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            foreach=True,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.learning_rate,
            weight_decay=self._training.weight_decay,
            eps=EPSILON,
            maximize=False,
        )

    def _state(self, parameter: nn.Parameter) -> State:
        return self.states.setdefault(parameter, {})

    def _adam_state(self, parameter: nn.Parameter) -> State:
        state = self._state(parameter)
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state
