import { useEffect, useMemo, useRef } from "preact/hooks";
import type { WholeJob } from "../../api/types";
import { addKeys } from "../../keys";
import { refine, route } from "../../router";
import { Line } from "./log/Line";
import { LogBar } from "./log/LogBar";
import { LogLines, type Which } from "./log/lines";
import { MergedLines } from "./log/merged";
import { LogSearch, type Found } from "./log/search";
import { SearchBox } from "./log/SearchBox";
import { Tail } from "./log/Tail";
import { useRows } from "./log/useRows";
import { isWrapped } from "./log/wrap";
import type { Stream } from "./shapes";

interface Props {
  job: WholeJob;
  attempt: number;
  last: Stream; // the stream that stands behind the other: it tells why the job failed
  isWhole: boolean; // it has the page to itself
}

/** The output of a job: live, and followed until the user scrolls up. */
export function Log({ job, attempt, last, isWhole }: Props) {
  if (!attempt) return <p class="panel faint">It has not started: there is no output yet.</p>;
  const streams = streamsOf(job, last);
  const which = { job: job.id, attempt };
  return <OneLog key={`${attempt}-${streams.join()}`} job={job} which={which} streams={streams} isWhole={isWhole} />;
}

/** Both, in the order in which they stand, unless the address names one. A line in it is one of stdout. */
function streamsOf(job: WholeJob, last: Stream): readonly Stream[] {
  const query = route.value.query;
  const asked = query.get("stream");
  if (job.stdout === job.stderr) return ["stdout"];
  if (asked === "stderr") return ["stderr"];
  if (asked === "stdout" || (asked === null && query.has("line"))) return ["stdout"];
  return last === "stderr" ? ["stdout", "stderr"] : ["stderr", "stdout"];
}

interface OneLogProps {
  job: WholeJob;
  which: Omit<Which, "stream">;
  streams: readonly Stream[];
  isWhole: boolean;
}

function OneLog({ job, which, streams, isWhole }: OneLogProps) {
  const merged = useMemo(() => (streams.length > 1 ? new MergedLines(which, streams[1]!) : null), []);
  const lines = useMemo(() => merged ?? new LogLines({ ...which, stream: streams[0]! }), []);
  const search = useMemo(() => new LogSearch(which, streams), []);
  useEffect(() => () => (lines.close(), search.stop()), []);
  const isRunning = job.attempts_list.find((one) => one.number === which.attempt)?.ended_at === null;
  useEffect(() => lines.grows(isRunning), [isRunning]);

  const asked = Number(route.value.query.get("line"));
  const linked = Number.isInteger(asked) && asked > 0 ? asked - 1 : null;
  const scroller = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const rows = useRows(lines, scroller, linked);
  const go = (found: Found | null) => found && rows.goTo(lines.placeOf(found.stream, found.number));

  const seen = useRef(linked);
  useEffect(() => {
    const isNew = linked !== null && linked !== seen.current;
    seen.current = linked;
    const inSight = rows.items.some((item) => rows.base + item.index === linked);
    if (isNew && !inSight) rows.goTo(linked);
    else if (isNew) rows.setFollowing(false);
  }, [linked]);

  useEffect(
    () =>
      addKeys([
        { keys: "/", does: "search the log", run: () => field.current?.focus() },
        { keys: "n", does: "next match", run: () => void search.next().then(go) },
        { keys: "N", does: "previous match", run: () => void search.previous().then(go) },
        { keys: "G", does: "end of the log", run: rows.goToEnd },
        { keys: "g g", does: "beginning of the log", run: () => rows.goTo(0) },
        { keys: "f", does: "follow the log", run: rows.goToEnd },
        { keys: "w", does: "break long lines", run: () => (isWrapped.value = !isWrapped.value) },
      ]),
    [],
  );

  const { total, size, isCounted, tail } = lines;
  const isEmpty = size.value === 0;
  const match = search.lines.value[search.at.value];
  const current = match && lines.placeOf(match.stream, match.number);
  const where = streams.join(" and ");
  const choose = (query: Record<string, string | undefined>) => refine({ ...query, line: undefined });
  return (
    <section class={isWhole ? "log log-whole" : "log"} aria-label="log">
      <LogBar
        job={job}
        which={which}
        streams={streams}
        bytes={size.value}
        isFollowing={rows.isFollowing}
        choose={choose}
        follow={() => rows.setFollowing(!rows.isFollowing)}
      >
        <SearchBox search={search} field={field} go={go} />
      </LogBar>
      {lines.error.value && <p class="error log-note">{lines.error.value}</p>}
      {!isCounted.value && <p class="faint log-note">It is long: its lines are being counted…</p>}
      {merged?.isMixed.value && (
        <p class="faint log-note">
          {merged.isOrdered.value ? "Two files, in one view: their order is approximate." : `Two files, in one view: ${merged.last} stands last.`}
        </p>
      )}
      <div
        ref={scroller}
        class={isWrapped.value ? "log-scroll is-wrapped" : "log-scroll"}
        tabIndex={0}
        role="region"
        aria-label="lines"
        onScroll={rows.onScroll}
      >
        {!isCounted.value && (rows.isFollowing || rows.isInTail) ? (
          <Tail lines={tail.value} />
        ) : (
          <div class="log-lines mono" style={{ height: `${rows.height}px` }}>
            {rows.items.map((item) => (
              <Line
                key={rows.base + item.index}
                which={which}
                line={lines.at(rows.base + item.index)}
                index={item.index}
                top={item.start}
                showsStream={merged?.isMarked.value ?? false}
                query={search.query.value}
                isLinked={rows.base + item.index === linked}
                isCurrent={rows.base + item.index === current}
                measure={rows.measure}
              />
            ))}
          </div>
        )}
        {isEmpty && <p class="faint log-note">{isRunning ? `Nothing on ${where} yet.` : `It wrote nothing to ${where}.`}</p>}
      </div>
      {!rows.isFollowing && total.value > 0 && (
        <button class="log-jump" onClick={rows.goToEnd}>
          ↓ Jump to the end
        </button>
      )}
    </section>
  );
}
