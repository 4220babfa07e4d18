"""The test of a card: as a program of its own, over a driver's library that a compiler makes for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# A driver whose card is the host's memory. What the card is asked for goes wrong as DIBS_TEST_FAULT says.
DRIVER = r"""
#include <stdlib.h>
#include <string.h>
static int fails(const char *name) {
    const char *fault = getenv("DIBS_TEST_FAULT");
    return fault && !strcmp(fault, name);
}
typedef unsigned long place_t;
int cuInit(unsigned flags) { return fails("cuInit") ? 100 : fails("stub") ? 34 : 0; }
int cuDeviceGet(int *device, int number) { *device = number; return fails("cuDeviceGet") ? 101 : 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = malloc(1); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxSetCurrent(void *context) { return context ? 0 : 1; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(place_t *place, size_t size) {
    *place = (place_t)malloc(size);
    return fails("cuMemAlloc") ? 2 : 0;
}
int cuMemFree_v2(place_t place) { free((void *)place); return 0; }
int cuMemsetD8_v2(place_t place, unsigned char byte, size_t size) { memset((void *)place, byte, size); return 0; }
int cuMemcpyHtoD_v2(place_t place, const void *from, size_t size) { memcpy((void *)place, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, place_t place, size_t size) {
    memcpy(to, (void *)place, size);
    if (fails("forgets")) ((char *)to)[size / 2] ^= 1;
    return fails("cuMemcpyDtoH") ? 214 : 0;
}
int cuGetErrorName(int status, const char **text) {
    *text = status == 214 ? "CUDA_ERROR_ECC_UNCORRECTABLE" : "CUDA_ERROR";
    return 0;
}
int cuGetErrorString(int status, const char **text) { *text = "as the driver says"; return 0; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler here")
    (folder / "cuda.c").write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "cuda.c"], check=True)
    return folder


def canary(library: Path | None, fault: str = "", **more: float) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "DIBS_TEST_FAULT": fault, "LD_LIBRARY_PATH": str(library or "/nonexistent")}
    words = [sys.executable, "-P", "-m", "dibs.gpus.canary"]
    return subprocess.run(words, env=environ, capture_output=True, text=True, **more)  # type: ignore[call-overload,no-any-return]


def test_a_card_that_gives_back_what_was_written_is_well(library: Path) -> None:
    ended = canary(library)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("cuInit", "cuInit says CUDA_ERROR (as the driver says)"),
        ("cuMemAlloc", "cuMemAlloc says CUDA_ERROR (as the driver says)"),
        ("cuMemcpyDtoH", "cuMemcpyDtoH says CUDA_ERROR_ECC_UNCORRECTABLE (as the driver says)"),
        ("forgets", "of 67108864 bytes that were written to its memory 1 came back wrong"),
    ],
)
def test_a_card_that_is_not_well_says_so_in_one_sentence(library: Path, fault: str, sentence: str) -> None:
    ended = canary(library, fault)

    assert (ended.returncode, ended.stdout, ended.stderr) == (1, f"{sentence}\n", "")


def test_without_a_driver_there_is_nothing_to_test_with(library: Path) -> None:
    ended = canary(library, "stub")

    assert ended.returncode == 3
    assert ended.stdout == "there is nothing to test it with: there is no driver behind its library\n"


def test_it_needs_nothing_but_the_standard_library() -> None:
    look = (
        "import sys, dibs.gpus.canary; print([n for n in sys.modules if n.split('.')[0] in ('click', 'pynvml')])"
    )

    shown = subprocess.run([sys.executable, "-P", "-c", look], capture_output=True, text=True, check=True)

    assert shown.stdout == "[]\n"
