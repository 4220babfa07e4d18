"""Whether what dibs says about the card is true: memory, strangers, errors."""

import os
import subprocess
import sys
from pathlib import Path

from gpu.card import Card
from gpu.world import World, python, seconds_until
from report import Report, Table, Target

_TOLERANCE = 0.05
_SOON = 2.0  # seconds
_HOLD = """
import sys, time, torch
held = torch.ones(int(float(sys.argv[1]) * 2**28), device="cuda")
torch.cuda.synchronize()
print(torch.cuda.max_memory_reserved(), flush=True)
time.sleep(float(sys.argv[2]))
"""
_STRANGER = "import torch, time; x = torch.ones(2**28, device='cuda'); print('there', flush=True); time.sleep(600)"
_CONTEXT = "import torch, time; torch.ones(1, device='cuda'); print('there', flush=True); time.sleep(600)"
_TOO_MUCH = "import torch; [torch.ones(2**36, device='cuda') for _ in range(9)]"
# Writes to an address that nobody owns: the driver reports an Xid, and the card is as good as before.
_BAD_KERNEL = '''
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDeviceGet(ctypes.byref(device), 0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
cuda.cuCtxSetCurrent(context)
kernel = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry bad() { .reg .u64 %r; mov.u64 %r, 16; st.global.u32 [%r], 7; ret; }
"""
cuda.cuModuleLoadData(ctypes.byref(module), kernel)
cuda.cuModuleGetFunction(ctypes.byref(function), module, b"bad")
cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
sys.exit(f"CUDA error {cuda.cuCtxSynchronize()}: an illegal memory access was encountered")
'''


def measure(card: Card, scratch: Path) -> Report:
    world = World(scratch / "truth")
    (world.folder / "hold.py").write_text(_HOLD)
    try:
        memory = [_memory(card, world, size) for size in (1, 8, 40)]
        worst = max(abs(seen - true) / true for _, true, seen in memory)
        seen_after, started_after, why = _stranger(world)
        oom = world.info(_failed(world, _TOO_MUCH))["attempts_list"][-1]
        bad = world.info(_failed(world, _BAD_KERNEL))["attempts_list"][-1]
        canary = subprocess.run(
            [sys.executable, "-m", "dibs.gpus.canary"],
            env={**world.environment, "CUDA_VISIBLE_DEVICES": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        world.stop()
    return Report(
        title="The truth about the card",
        how=(
            "Jobs that hold memory: what torch says it reserved plus what an empty context takes, beside the peak "
            "that dibs measured. Then a stranger's process, a job that asks for too much, and one that writes "
            "where it must not."
        ),
        tables=[
            Table(
                title="Peak memory",
                columns=["job holds", "torch and context, MB", "dibs, MB", "off by %"],
                rows=[_compared(*one) for one in memory],
            ),
            Table(
                title="What is said of it",
                columns=["", "said"],
                rows=[
                    ["a job that waits for a stranger", f"`{why}`"],
                    ["too much memory", f"`{oom['cause']}`: {oom['message']}"],
                    ["a write to a wrong address", f"`{bad['cause']}`: {bad['message']}"],
                    ["the canary", canary.stdout.strip() or canary.stderr.strip()],
                ],
            ),
        ],
        targets=[
            Target(text="peak memory within 5 %", measured=f"{100 * worst:.1f} %", is_met=worst <= _TOLERANCE),
            Target(
                text="a stranger's process is seen within 2 s",
                measured=f"{seen_after:.1f} s",
                is_met=seen_after <= _SOON,
            ),
            Target(
                text="a CUDA out-of-memory is named", measured=str(oom["cause"]), is_met=oom["cause"] == "gpu-oom"
            ),
        ],
        notes=[f"The job that waited for the stranger began {started_after:.1f} s after it was gone."],
        data={"canary_status": canary.returncode, "bad_kernel": bad, "gpu_oom": oom},
    )


def _memory(card: Card, world: World, size: int) -> tuple[int, int, int]:
    """What it holds in GiB, what that is with torch's own reserve and the context, and what dibs says."""
    job = world.add("--", sys.executable, f"{world.folder}/hold.py", str(size), "6")
    world.dibs("wait", "-q", job)
    reserved = int(world.log(job))
    peak = int(world.info(job)["attempts_list"][-1]["usage"]["peak_vram_bytes"])
    return size, reserved + _context(card, world), peak


def _compared(size: int, true: int, seen: int) -> list[str]:
    return [f"{size} GiB", f"{true / 1e6:,.0f}", f"{seen / 1e6:,.0f}", f"{100 * (seen - true) / true:+.1f}"]


def _context(card: Card, world: World) -> int:
    """What torch takes of the card before it holds anything: all but the two MiB of its first tensor."""
    process = python(_CONTEXT, world.environment)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        return card.memory_of(process.pid) - 2 * 2**20
    finally:
        process.kill()
        process.wait()


def _stranger(world: World) -> tuple[float, float, str]:
    process = python(_STRANGER, world.environment)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        seen_after = seconds_until(lambda: world.gpu()["state"] == "busy", "the stranger is seen")
        job = world.add("--", "true")
        why = world.dibs("why", job).strip().replace(f"pid {process.pid}", "pid 4711")
        still_waits = world.info(job)["state"] == "queued"
    finally:
        process.kill()
        process.wait()
    if not still_waits:
        raise SystemExit("a job was started beside a stranger")
    return seen_after, seconds_until(lambda: world.info(job)["state"] == "succeeded", "the job runs"), why


def _failed(world: World, code: str) -> str:
    script = world.folder / f"failing-{len(os.listdir(world.folder))}.py"
    script.write_text(code)
    job = world.add("--", sys.executable, str(script))
    world.dibs("wait", "-q", job, may_fail=True)
    return job
