"""The machine, for whoever compares the figures with those of another."""

import os
import platform
import re
import statistics
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
SYNCS = 200


def first_match(pattern: str, path: str) -> str:
    found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    return found.group(1).strip() if found else "unknown"


def output(*command: str, cwd=None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def file_system(directory: Path) -> str:
    return output("findmnt", "--noheadings", "--first-only", "--output", "FSTYPE", "--target", str(directory))


def is_memory(directory: Path) -> bool:
    return file_system(directory) in MEMORY_FILE_SYSTEMS


def block_device(directory: Path) -> str:
    number = directory.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        return "an unknown device"
    device = device.resolve()
    whole = device.parent if (device / "partition").exists() else device
    if whole.name.startswith(("vd", "xvd")):
        kind = "virtual disk"
    else:
        kind = "hard disk" if (whole / "queue/rotational").read_text().strip() == "1" else "solid state disk"
    return f"{kind} {device.name}"


def sync_milliseconds(directory: Path) -> float:
    """The median of an fdatasync after 4 KB, which is what `always` waits for."""
    path = directory / "sync"
    times = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    path.unlink()
    return statistics.median(times) * 1000


def cpu_ticks() -> tuple[int, int]:
    """All, and those stolen by other guests of the host."""
    ticks = [int(word) for word in first_match(r"^cpu +(.*)$", "/proc/stat").split()]
    return sum(ticks[:8]), ticks[7]


def describe(directory: Path, cairn: str) -> dict[str, str]:
    processor = first_match(r"^model name\s*:(.*)$", "/proc/cpuinfo")
    memory = int(first_match(r"^MemTotal:\s+(\d+)", "/proc/meminfo")) / (1 << 20)
    here = Path(__file__).parent
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{processor}, {os.cpu_count()} cores",
        "memory": f"{memory:.1f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": f"{block_device(directory)}, {file_system(directory)}, "
        f"fdatasync of 4 KB in {sync_milliseconds(directory):.2f} ms",
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "cairn": f"{output(cairn, '--version')}, commit {output('git', 'describe', '--always', '--dirty', cwd=here)}",
        "redis": output("redis-server", "--version"),
    }
