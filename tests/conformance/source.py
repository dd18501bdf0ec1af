"""Redis' test suite, as Debian ships it.

The source package comes from Debian 12, whose Redis is 7.0.15. apt is given a list of sources and a state
directory of its own for that, so the machine's own sources stay as they are and no root is needed.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

VERSION = "7.0.15"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = f"""\
deb-src [signed-by={KEYRING}] http://deb.debian.org/debian bookworm main
deb-src [signed-by={KEYRING}] http://deb.debian.org/debian-security bookworm-security main
"""


# Units that Redis leaves out against a server that runs already, though all that their first block of tests needs is
# a fresh one. What follows that block starts servers with files of its own.
OPENED = ("unit/acl", "unit/acl-v2")


class SourceError(Exception):
    """The suite or a tool it needs cannot be had."""


def suite_directory() -> Path:
    """Where the suite lies unpacked; fetched when it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cairn"
    suite = cache / f"redis-{VERSION}"
    if not suite.is_dir():
        require("apt-get", "dpkg-source")
        cache.mkdir(parents=True, exist_ok=True)
        _fetch(suite)
    for unit in OPENED:
        _open(suite, unit)
    return suite


def _open(suite: Path, unit: str):
    """Writes the first block of a unit as a unit of its own, `unit/acl-open`, that is not left out."""
    source = (suite / f"tests/{unit}.tcl").read_text()
    block = source[: re.search(r"^}$", source, re.MULTILINE).end()]
    opened = block.replace(" external:skip", "", 1) + "\n"
    path = suite / f"tests/{unit}-open.tcl"
    if not path.is_file() or path.read_text() != opened:
        # Another run may be reading it.
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(opened)
        scratch.rename(path)


def require(*commands: str):
    missing = [command for command in commands if not shutil.which(command)]
    if missing:
        raise SourceError(f"{', '.join(missing)} not found: `make test-tools` installs what the tests need")


def _fetch(suite: Path):
    print(f"fetching Debian's source of redis {VERSION}", flush=True)
    # Beside its destination, so that the last step is a rename and a half-fetched suite is never seen.
    with tempfile.TemporaryDirectory(dir=suite.parent) as scratch:
        work = Path(scratch)
        (work / "sources.list").write_text(SOURCES)
        for needed in ("lists/partial", "cache/archives/partial"):
            (work / needed).mkdir(parents=True)
        private = [
            f"Dir::Etc::SourceList={work}/sources.list",
            "Dir::Etc::SourceParts=/dev/null",
            f"Dir::State::Lists={work}/lists",
            f"Dir::Cache={work}/cache",
        ]
        apt_get = ["apt-get", *(word for option in private for word in ("-o", option))]
        _run([*apt_get, "update"])
        _run([*apt_get, "source", "redis"], cwd=work)
        unpacked = work / suite.name
        if not (unpacked / "tests/test_helper.tcl").is_file():
            raise SourceError(f"the source package holds no {suite.name}/tests/test_helper.tcl")
        try:
            unpacked.rename(suite)
        except OSError:
            # Another run may have been faster.
            if not suite.is_dir():
                raise


def _run(command, cwd=None):
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SourceError(f"{' '.join(command)}\n{done.stdout}")
