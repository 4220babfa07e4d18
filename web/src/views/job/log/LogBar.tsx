import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { WholeJob } from "../../../api/types";
import { size } from "../../../words";
import { download } from "./download";
import type { Which } from "./lines";
import { isWrapped } from "./wrap";

interface Props {
  job: WholeJob;
  which: Which;
  bytes: number | null;
  isFollowing: boolean;
  choose: (query: Record<string, string | undefined>) => void;
  follow: () => void;
  children: ComponentChildren; // the search
}

/** Which log it is, how it is shown, and the way out of it. */
export function LogBar({ job, which, bytes, isFollowing, choose, follow, children }: Props) {
  const [isLoading, setLoading] = useState(false);
  const save = async () => {
    setLoading(true);
    await download(which);
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
          {(["stdout", "stderr"] as const).map((stream) => (
            <button
              key={stream}
              class="chip"
              aria-pressed={which.stream === stream}
              onClick={() => choose({ stream })}
            >
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
