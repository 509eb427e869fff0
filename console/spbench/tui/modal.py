"""The base of what is asked or shown in front of a page."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

Answer = TypeVar("Answer")


class Modal(ModalScreen[Answer]):
    """A screen in front of a page; the page's keys and the application's rest, but for help.

    Attributes:
        HELP: What F1 says where the focused widget has nothing of its own to say.
    """

    HELP: ClassVar[str] = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "app.help", "Help", show=False, id="modal.help", tooltip="Help, and keys"),
    ]
