// What a failed program said last: the line of its exception, or the end of stderr.
import { get } from "../../api/client";
import type { WholeJob } from "../../api/types";
import { useLive } from "../../state/useLive";
import type { LogPage, Stream } from "./shapes";

const READ = 100; // lines at the end of each stream
const COLOUR = /\x1b\[[0-9;:]*m/g;
const TRACEBACK = /^\s*Traceback \(most recent call last\):/;

export interface Failure {
  text: string;
  stream: Stream; // that tells it
}

/** Null where it has not failed, while it is being read, and where nothing was said. */
export function useFailure(job: WholeJob | null, attempt: number): Failure | null {
  const hasFailed = Boolean(job?.attempts_list.find((one) => one.number === attempt)?.cause);
  const read = async (signal: AbortSignal): Promise<Failure | null> => {
    if (!job || !hasFailed) return null;
    const ends = await Promise.all(
      (["stderr", "stdout"] as const).map(async (stream) => {
        const query = { attempt, stream, first: -READ, count: READ };
        const { lines } = await get<LogPage>(`v1/jobs/${job.id}/log/lines`, query, signal);
        return { stream, lines: lines.map((line) => line.replace(COLOUR, "").trimEnd()) };
      }),
    );
    for (const { stream, lines } of ends) {
      const text = exceptionIn(lines);
      if (text) return { text, stream };
    }
    const text = job.stdout === job.stderr ? undefined : ends[0]!.lines.findLast(Boolean);
    return text ? { text, stream: "stderr" } : null;
  };
  return useLive(read, [job?.id, attempt, hasFailed], { concerns: () => false }).data.value;
}

/** The first line behind the last traceback that is not indented. */
function exceptionIn(lines: string[]): string | undefined {
  const begin = lines.findLastIndex((line) => TRACEBACK.test(line));
  return begin < 0 ? undefined : lines.slice(begin + 1).find((line) => line && !/^\s/.test(line));
}
