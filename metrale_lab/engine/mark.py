"""Whether work on a stream really ran."""

from __future__ import annotations

from dataclasses import dataclass

from metrale_lab.device.base import Stream


@dataclass(slots=True)
class Mark:
    """Set once the work before it ran; work is skipped when work before it on the stream failed."""

    ran: bool = False

    @classmethod
    def behind(cls, stream: Stream) -> Mark:
        """One that is set, in stream order, behind what was enqueued."""
        mark = cls()
        stream.enqueue(mark._set)
        return mark

    def _set(self) -> None:
        self.ran = True
