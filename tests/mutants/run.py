"""Mutation testing with cosmic-ray, in a copy of the repository.

    python -m tests.mutants.run [FILE ...]

Files are names of `SUITES`; none: all of them. Prints each mutant that survived, as a diff. Ends
with 1 when one did that `EXPLAINED` does not know.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.explained import EXPLAINED
from tests.planted.copies import copy_repository, environment_of

TIMEOUT_S = 240.0
CACHE = "tests/cache"
ROUTERS = "tests/scheduler/test_routers.py tests/scheduler/test_pipeline.py"
SUITES = {
    **{
        f"metrale_lab/cache/{name}.py": CACHE
        for name in (
            "pool",
            "allocator",
            "tree",
            "trie",
            "nodes",
            "lru",
            "recency",
            "misses",
            "ghosts",
        )
    },
    **{f"metrale_lab/scheduler/{name}.py": ROUTERS for name in ("routers", "router", "ring")},
}
CONFIG = """
[cosmic-ray]
module-path = "{file}"
timeout = {timeout}
excluded-modules = []
test-command = "{python} -m pytest -x -q -p no:cacheprovider {tests}"

[cosmic-ray.distributor]
name = "local"
"""


class Mutant(NamedTuple):
    """One change that cosmic-ray made, and whether a test failed."""

    file: str
    line: int
    survived: bool
    diff: str

    @property
    def changed(self) -> str:
        """The new line."""
        added = [one[1:] for one in self.diff.splitlines() if one[:1] == "+" and one[:3] != "+++"]
        return " ".join(added).strip()


def main() -> int:
    """Run the mutants of each file; the exit code."""
    options = _options()
    unknown = 0
    for file in options.files or SUITES:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            mutants = list(_run(file, copy_repository(Path(folder) / "copy")))
        survived = [one for one in mutants if one.survived]
        new = [one for one in survived if one.changed not in EXPLAINED.get(file, {})]
        for one in survived:
            why = EXPLAINED.get(file, {}).get(one.changed, "SURVIVED")
            print(f"{file}:{one.line}: {one.changed}\n    {why}", flush=True)
        killed = len(mutants) - len(survived)
        print(f"{file}: {killed} of {len(mutants)} killed, {len(new)} to explain", flush=True)
        unknown += len(new)
    return 1 if unknown else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Mutate files and see whether tests notice.")
    parser.add_argument("files", nargs="*", help="files to mutate")
    return parser.parse_args()


def _run(file: str, copy: Path) -> Iterator[Mutant]:
    config, session = copy / "mutants.toml", copy / "mutants.sqlite"
    values = {"file": file, "timeout": TIMEOUT_S, "python": sys.executable, "tests": SUITES[file]}
    config.write_text(CONFIG.format(**values))
    for command in ("init", "exec"):
        _cosmic_ray(copy, command, config.name, session.name)
    for line in _cosmic_ray(copy, "dump", session.name).splitlines():
        work, result = json.loads(line)
        for mutation in work["mutations"]:
            if result is not None and not _of_a_type(result["diff"] or ""):
                yield _mutant(file, mutation, result)


def _cosmic_ray(copy: Path, *arguments: str) -> str:
    # Compiled files would outlive a mutant that was made within the same second.
    environment = {**environment_of(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(Path(sys.executable).with_name("cosmic-ray")), *arguments]
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _mutant(file: str, mutation: dict[str, Any], result: dict[str, Any]) -> Mutant:
    survived = result["test_outcome"] == "survived"
    return Mutant(file, mutation["start_pos"][0], survived, result["diff"] or "")


def _of_a_type(diff: str) -> bool:
    """Whether the change is in an annotation ("int | None"), which nothing evaluates."""
    changed = [one for one in diff.splitlines() if one[:1] == "-" and one[:3] != "---"]
    return any("| None" in one for one in changed)


if __name__ == "__main__":
    sys.exit(main())
