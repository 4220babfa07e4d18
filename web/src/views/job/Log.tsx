import { useEffect, useMemo, useRef } from "preact/hooks";
import { get } from "../../api/client";
import type { WholeJob } from "../../api/types";
import { addKeys } from "../../keys";
import { refine, route } from "../../router";
import { Line } from "./log/Line";
import { LogBar } from "./log/LogBar";
import { LogLines, type Which } from "./log/lines";
import { LogSearch } from "./log/search";
import { SearchBox } from "./log/SearchBox";
import { Tail } from "./log/Tail";
import { useRows } from "./log/useRows";
import { isWrapped } from "./log/wrap";
import type { LogPage } from "./shapes";

interface Props {
  job: WholeJob;
  attempt: number;
  isWhole: boolean; // it has the page to itself
}

/** The output of a job: live, and followed until the user scrolls up. */
export function Log({ job, attempt, isWhole }: Props) {
  if (!attempt) return <p class="panel faint">It has not started: there is no output yet.</p>;
  const stream = route.value.query.get("stream") === "stderr" && job.stdout !== job.stderr ? "stderr" : "stdout";
  const which: Which = { job: job.id, attempt, stream };
  return <OneLog key={`${attempt}-${stream}`} job={job} which={which} isWhole={isWhole} />;
}

function OneLog({ job, which, isWhole }: { job: WholeJob; which: Which; isWhole: boolean }) {
  const lines = useMemo(() => new LogLines(which), []);
  const search = useMemo(() => new LogSearch(which), []);
  useEffect(() => () => (lines.close(), search.stop()), []);
  const isRunning = job.attempts_list.find((one) => one.number === which.attempt)?.ended_at === null;
  useEffect(() => lines.grows(isRunning), [isRunning]);

  const asked = Number(route.value.query.get("line"));
  const linked = Number.isInteger(asked) && asked > 0 ? asked - 1 : null;
  const scroller = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const rows = useRows(lines, scroller, linked);
  const go = (place: number | null) => place !== null && rows.goTo(place);

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
  useEffect(() => {
    if (isEmpty && job.stdout !== job.stderr && !route.value.query.has("stream")) void lookAtErrors(which);
  }, [isEmpty]);
  const current = search.lines.value[search.at.value];
  const choose = (query: Record<string, string | undefined>) => refine({ ...query, line: undefined });
  return (
    <section class={isWhole ? "log log-whole" : "log"} aria-label="log">
      <LogBar
        job={job}
        which={which}
        bytes={size.value}
        isFollowing={rows.isFollowing}
        choose={choose}
        follow={() => rows.setFollowing(!rows.isFollowing)}
      >
        <SearchBox search={search} field={field} go={go} />
      </LogBar>
      {lines.error.value && <p class="error log-note">{lines.error.value}</p>}
      {!isCounted.value && <p class="faint log-note">It is long: its lines are being counted…</p>}
      <div
        ref={scroller}
        class={isWrapped.value ? "log-scroll is-wrapped" : "log-scroll"}
        tabIndex={0}
        role="region"
        aria-label="lines"
        onScroll={rows.onScroll}
      >
        {!isCounted.value && rows.isFollowing ? (
          <Tail lines={tail.value} />
        ) : (
          <div class="log-lines mono" style={{ height: `${rows.height}px` }}>
            {rows.items.map((item) => (
              <Line
                key={rows.base + item.index}
                which={which}
                place={rows.base + item.index}
                index={item.index}
                top={item.start}
                spans={lines.line(rows.base + item.index)}
                query={search.query.value}
                isLinked={rows.base + item.index === linked}
                isCurrent={rows.base + item.index === current}
                measure={rows.measure}
              />
            ))}
          </div>
        )}
        {isEmpty && <p class="faint log-note">{isRunning ? `Nothing on ${which.stream} yet.` : `It wrote nothing to ${which.stream}.`}</p>}
      </div>
      {!rows.isFollowing && total.value > 0 && (
        <button class="log-jump" onClick={rows.goToEnd}>
          ↓ Jump to the end
        </button>
      )}
    </section>
  );
}

/** Who writes only errors is shown with them. */
async function lookAtErrors({ job, attempt }: Which): Promise<void> {
  const query = { attempt, stream: "stderr", first: 0, count: 0 };
  const errors = await get<LogPage>(`v1/jobs/${job}/log/lines`, query).catch(() => null);
  if (errors?.size && !route.value.query.has("stream")) refine({ stream: "stderr" });
}
