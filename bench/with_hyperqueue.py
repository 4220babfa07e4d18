"""Run by HyperQueue's own interpreter: so many jobs of `true` through a local cluster; prints the seconds.

`with_hyperqueue.py FOLDER JOBS SLOTS`. The cluster is up before the clock starts, as every daemon here.
"""

import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

folder, jobs, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with LocalCluster(folder, WorkerConfig(cores=slots)) as cluster:
    client = cluster.client()
    begin = time.perf_counter()
    job = Job(max_fails=None)
    for _ in range(jobs):
        job.program(["bash", "-c", "true"], stdout=None, stderr=None)
    failed = client.connection.wait_for_jobs((client.submit(job).id,), lambda _: None)
    took = time.perf_counter() - begin
print("seconds", took)
sys.exit(bool(failed))
