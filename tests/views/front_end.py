"""A front end without a browser: runs cells as a notebook does, and answers widgets' hellos."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


class FrontEnd:
    """One kernel, and the messages that it sent."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.messages: list[dict[str, Any]] = []

    def run(self, code: str) -> list[dict[str, Any]]:
        """Run a cell; the messages that came until the kernel was idle again."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        session = self._client.session
        request = session.msg("execute_request", content, metadata={"cellId": "a-cell"})
        return self._until_idle(request)

    def send_comm(
        self, comm: str, data: dict[str, Any], subshell: str | None = None
    ) -> list[dict[str, Any]]:
        """Send a widget's custom message, on a subshell when one is given."""
        content = {"comm_id": comm, "data": {"method": "custom", "content": data}}
        message = self._client.session.msg("comm_msg", content)
        message["header"]["subshell_id"] = subshell
        return self._until_idle(message)

    def control(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Send a request on the control channel; its reply's content."""
        self._client.control_channel.send(self._client.session.msg(kind, content))
        return dict(self._client.get_control_msg(timeout=TIMEOUT_S)["content"])

    def next_frame(self) -> dict[str, Any]:
        """Wait for the next frame of a panel; its header."""
        while True:
            message = self._client.get_iopub_msg(timeout=TIMEOUT_S)
            header = message["content"].get("data", {}).get("content", {})
            if message["msg_type"] == "comm_msg" and "arrays" in header:
                return dict(header)

    def printed(self, code: str) -> str:
        """What a cell prints."""
        return "".join(
            one["content"]["text"] for one in self.run(code) if one["msg_type"] == "stream"
        )

    def _until_idle(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        self._client.shell_channel.send(request)
        got: list[dict[str, Any]] = []
        while True:
            message = self._client.get_iopub_msg(timeout=TIMEOUT_S)
            self.messages.append(message)
            got.append(message)
            assert message["msg_type"] != "error", "\n".join(message["content"]["traceback"])
            own = message["parent_header"].get("msg_id") == request["header"]["msg_id"]
            idle = message["content"].get("execution_state") == "idle"
            if own and message["msg_type"] == "status" and idle:
                return got


@contextmanager
def front_end() -> Iterator[FrontEnd]:
    """A kernel of its own, ended afterwards."""
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(REPOSITORY))
    try:
        yield FrontEnd(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def of_kind(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The contents of the messages of one kind."""
    return [one["content"] for one in messages if one["msg_type"] == kind]
