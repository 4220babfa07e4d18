"""A GPU for this very process, as in a notebook or in CI: `python examples/python_lease.py [GPUS]`."""

import os
import sys

import dibs

# Before torch or anything else looks for a GPU. It waits until one is free, in order of arrival.
with dibs.gpu(num_gpus=1, gpus=sys.argv[1] if len(sys.argv) > 1 else "auto", wait=60) as leased:
    print("GPU", *leased.ids, "is ours: CUDA_VISIBLE_DEVICES is", os.environ["CUDA_VISIBLE_DEVICES"])
print("and given back")
