"""Simulation of a step: the times of tasks and of messages.

A device runs its tasks one by one, in a given order. A task starts when its devices have reached it
and its input has arrived. A link carries one message at a time, in the order in which their senders
finish. There are no estimates: an event starts when the last event that it waits for ends.
"""

from __future__ import annotations

from collections.abc import Sequence

NOT_STARTED = -1.0
"""The time of an event that has not happened; times of others are from 0 on."""

RowTask = tuple[int, int]
"""A task: the index of its row, and its micro-batch."""

RowOutput = tuple[list[float], int | None, float, list[float]]
"""A connection from a row to another row: a tuple, because the innermost loop reads it.

It contains the arrival times of the other row's inputs, the link that carries messages, if any, the
seconds of each message, and the start times of the messages."""


class TaskRow:
    """The tasks of one kind on one stage, one for each micro-batch.

    Args:
        seconds: Seconds of each task.
        micro_batches: Their number.
        needs_input: Whether the tasks wait for an input.
        devices: The devices that do a task together; empty if it takes one.

    Attributes:
        input_arrivals: By micro-batch, when the input arrives.
        starts: By micro-batch, when the task starts.
        outputs: The receivers of the results.
    """

    __slots__ = ("devices", "input_arrivals", "outputs", "seconds", "starts")

    def __init__(
        self,
        seconds: float,
        micro_batches: int,
        *,
        needs_input: bool = True,
        devices: Sequence[int] = (),
    ) -> None:
        self.seconds = seconds
        self.devices = devices
        self.input_arrivals = [NOT_STARTED if needs_input else 0.0] * micro_batches
        self.starts = [NOT_STARTED] * micro_batches
        self.outputs: list[RowOutput] = []

    @property
    def ends(self) -> list[float]:
        """By micro-batch, when the task ends."""
        return [start + self.seconds for start in self.starts]

    def feed(
        self, target: TaskRow, *, link: int | None = None, seconds: float = 0.0
    ) -> list[float]:
        """Make the results the input of another row.

        Args:
            target: The row.
            link: The link that carries them as messages; None: they arrive immediately.
            seconds: Seconds of each message.

        Returns:
            By micro-batch, when the message starts; empty without a link.
        """
        send_starts = [] if link is None else [NOT_STARTED] * len(self.starts)
        self.outputs.append((target.input_arrivals, link, seconds, send_starts))
        return send_starts


class StepSimulation:
    """The state of a step while it is simulated.

    Args:
        orders: By device, its tasks from first to last.
        rows: The rows that the tasks name.
        links: The number of links.

    Attributes:
        free_at: By device, the time when it finishes its last task.
        next_index: By device, the index of its next task in its order.
    """

    def __init__(
        self, orders: Sequence[Sequence[RowTask]], rows: Sequence[TaskRow], links: int
    ) -> None:
        self.free_at = [0.0] * len(orders)
        self.next_index = [0] * len(orders)
        self._orders = orders
        self._rows = rows
        self._free_at_by_link = [0.0] * links
        self._remaining_s = [0.0] * len(orders)

    def run(self) -> None:
        """Run tasks until no device can continue."""
        devices = range(len(self._orders))
        while sum(map(self._run_ready_tasks, devices)):
            devices = devices[::-1]  # results go down the pipeline and up again

    def run_within(self, limit_s: float, work_s_by_device: Sequence[float]) -> bool:
        """Run tasks until no device can continue, or the step certainly exceeds a limit.

        Args:
            limit_s: Seconds.
            work_s_by_device: By device, the seconds of all its tasks.

        Returns:
            Whether the step may end within the limit.
        """
        self._remaining_s = list(work_s_by_device)
        devices = range(len(self._orders))
        while sum(map(self._run_ready_tasks, devices)):
            # At best, a device runs its remaining tasks without a pause.
            if any(
                free_at + remaining_s > limit_s
                for free_at, remaining_s in zip(self.free_at, self._remaining_s, strict=True)
            ):
                return False
        return True

    def _run_ready_tasks(self, device: int) -> int:
        """Run a device's tasks until one lacks its input; return the number of them."""
        order = self._orders[device]
        rows = self._rows
        free_at_by_link = self._free_at_by_link
        first_index = self.next_index[device]
        free_at = self.free_at[device]
        busy_s = 0.0
        index = first_index
        for index in range(first_index, len(order)):
            row_index, micro_batch = order[index]
            row = rows[row_index]
            start = row.input_arrivals[micro_batch]
            if start < 0.0:
                break
            devices = row.devices
            if devices:
                self.next_index[device] = index
                self.free_at[device] = free_at
                if not self._have_reached(devices, order[index]):
                    break
                free_at = max(self.free_at[shared_device] for shared_device in devices)
            if free_at > start:
                start = free_at
            row.starts[micro_batch] = start
            seconds = row.seconds
            free_at = start + seconds
            busy_s += seconds
            for input_arrivals, link, message_s, send_starts in row.outputs:
                if link is None:
                    input_arrivals[micro_batch] = free_at
                    continue
                send_start = free_at_by_link[link]
                if free_at > send_start:
                    send_start = free_at
                send_starts[micro_batch] = send_start
                free_at_by_link[link] = input_arrivals[micro_batch] = send_start + message_s
            if devices:
                for shared_device in devices:
                    self.next_index[shared_device] += 1
                    self.free_at[shared_device] = free_at
        else:
            index = len(order)
        self.next_index[device] = index
        self.free_at[device] = free_at
        self._remaining_s[device] -= busy_s
        return index - first_index

    def _have_reached(self, devices: Sequence[int], task: RowTask) -> bool:
        """Return whether a task comes next on all its devices."""
        for device in devices:
            order = self._orders[device]
            index = self.next_index[device]
            if index == len(order) or order[index] != task:
                return False
        return True
