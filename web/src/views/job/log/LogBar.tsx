import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { WholeJob } from "../../../api/types";
import { size } from "../../../words";
import type { Stream } from "../shapes";
import { download } from "./download";
import type { Which } from "./lines";
import { isWrapped } from "./wrap";

interface Props {
  job: WholeJob;
  which: Omit<Which, "stream">;
  streams: readonly Stream[]; // that are shown
  bytes: number | null;
  isFollowing: boolean;
  choose: (query: Record<string, string | undefined>) => void;
  follow: () => void;
  children: ComponentChildren; // the search
}

/** Which log it is, how it is shown, and the way out of it. */
export function LogBar({ job, which, streams, bytes, isFollowing, choose, follow, children }: Props) {
  const [isLoading, setLoading] = useState(false);
  const shown = streams.length > 1 ? "both" : streams[0];
  const save = async () => {
    setLoading(true);
    for (const stream of streams) await download(which, stream);
    setLoading(false);
  };
  return (
    <div class="log-bar">
      {job.attempts > 1 && (
        <select aria-label="attempt" value={String(which.attempt)} onChange={(event) => choose({ attempt: event.currentTarget.value })}>
          {job.attempts_list.map((one) => (
            <option key={one.number} value={String(one.number)}>
              attempt {one.number}
            </option>
          ))}
        </select>
      )}
      {job.stdout !== job.stderr && (
        <div class="chips" role="group" aria-label="stream">
          {(["both", "stdout", "stderr"] as const).map((stream) => (
            <button key={stream} class="chip" aria-pressed={shown === stream} onClick={() => choose({ stream })}>
              {stream}
            </button>
          ))}
        </div>
      )}
      {children}
      <button class="chip" aria-pressed={isFollowing} title="stay at the end (f)" onClick={follow}>
        Follow
      </button>
      <button class="chip" aria-pressed={isWrapped.value} title="break long lines (w)" onClick={() => (isWrapped.value = !isWrapped.value)}>
        Wrap
      </button>
      <button disabled={isLoading || !bytes} title="the file as it is" onClick={() => void save()}>
        {isLoading ? "Loading…" : "Download"} {bytes ? <span class="log-size">{size(bytes)}</span> : null}
      </button>
    </div>
  );
}
