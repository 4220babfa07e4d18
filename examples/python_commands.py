"""Commands into the queue from Python, awaited side by side: `python examples/python_commands.py`."""

import asyncio
import os

import dibs

TRAIN = ["python3", os.path.join(os.path.dirname(os.path.abspath(__file__)), "train.py"), "--seconds", "0.2"]


async def main() -> None:
    jobs = [dibs.submit([*TRAIN, "--lr", str(lr)], num_gpus=1, name=f"lr-{lr}") for lr in (0.1, 0.03)]
    async for line in jobs[0].log(follow=True):
        print("|", line)
    print("exit codes:", await asyncio.gather(*jobs))

    report = dibs.submit("echo all trained", num_gpus=0, after=jobs)
    await report
    print(report.log().strip())

    broken = dibs.submit([*TRAIN, "--fail", "always"])
    try:
        await broken
    except dibs.JobFailed as failed:
        print(f"as expected: {failed.message}")


if __name__ == "__main__":
    asyncio.run(main())
