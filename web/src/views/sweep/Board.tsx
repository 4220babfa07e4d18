import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { addKeys } from "../../keys";
import { refine, route, to } from "../../router";
import { useVirtual } from "../../state/virtual";
import { count, duration } from "../../words";
import { Badge } from "./Badge";
import { columnsOf, layout, NUMBER, sorted, type Column } from "./columns";
import type { Model } from "./model";
import { jobOf, openTrial } from "./opening";
import type { Trial } from "./shapes";

const HEIGHT = 34; // pixels of a row

/** Every trial that the brushes let through, the best first. */
export function Board({ model }: { model: Model }) {
  const scroller = useRef<HTMLDivElement>(null);
  const trials = model.trials.value;
  const passes = model.passes.value;
  const space = model.space.value;
  const columns = useMemo(() => columnsOf(space), [space]);
  const query = route.value.query;
  const wanted = query.get("by") ?? (space.metrics[0] ? `m ${space.metrics[0].name}` : NUMBER);
  const by = columns.find((one) => one.key === wanted) ?? columns[0]!;
  const isDown = by.isDown !== (query.get("turned") === "1");

  const ordered = useMemo(() => sorted(trials, by, isDown), [trials, by, isDown]);
  const rows = useMemo(() => {
    if (passes.every((one) => one)) return ordered;
    const left = new Set(trials.filter((_, index) => passes[index]));
    return ordered.filter((trial) => left.has(trial));
  }, [ordered, passes]);

  const virtual = useVirtual({ count: rows.length, estimateSize: () => HEIGHT, scroller });
  const [cursor, setCursor] = useState(0);
  const now = useRef({ rows, cursor });
  now.current = { rows, cursor };
  useEffect(() => {
    const move = (step: number) => {
      const next = Math.max(0, Math.min(now.current.rows.length - 1, now.current.cursor + step));
      setCursor(next);
      virtual.scrollToIndex(next, { align: "auto" });
      model.pointed.value = now.current.rows[next]?.number ?? null;
    };
    return addKeys([
      { keys: "j", does: "next trial", run: () => move(1) },
      { keys: "k", does: "previous trial", run: () => move(-1) },
      { keys: "Enter", does: "open the trial's job", run: () => openTrial(now.current.rows[now.current.cursor]) },
    ]);
  }, [model]);

  const turn = (column: Column) => {
    const isSame = column === by;
    refine({ by: column.key, turned: isSame && query.get("turned") !== "1" ? "1" : "" });
    scroller.current?.scrollTo({ top: 0 });
  };
  const grid = layout(columns);
  const some = rows.length < trials.length ? `${count(rows.length, "trial")} of ${trials.length.toLocaleString("en")}` : count(rows.length, "trial");
  return (
    <section class="panel sweep-board" aria-label="leaderboard">
      <h2>
        Leaderboard <span class="faint">{some}</span>
      </h2>
      <div class="sweep-table" ref={scroller} tabIndex={0} role="table" aria-label="trials" aria-rowcount={rows.length + 1}>
        <div role="rowgroup" class="sweep-table-head" style={{ minWidth: grid.minWidth }}>
          <div class="sweep-row" role="row" style={grid}>
            {columns.map((one) => (
              <span key={one.key} role="columnheader" aria-sort={one === by ? (isDown ? "descending" : "ascending") : "none"}>
                <button class="quiet" title={`sort by ${one.label}`} onClick={() => turn(one)}>
                  {one.label}
                  {one === by && <span aria-hidden="true">{isDown ? " ↓" : " ↑"}</span>}
                </button>
              </span>
            ))}
          </div>
        </div>
        <div role="rowgroup" class="sweep-rows" style={{ minWidth: grid.minWidth, height: `${virtual.getTotalSize()}px` }}>
          {virtual.getVirtualItems().map((item) => {
            const trial = rows[item.index];
            return (
              trial && (
                <Row
                  key={trial.number}
                  trial={trial}
                  place={item.index}
                  top={item.start}
                  columns={columns}
                  grid={grid}
                  isBest={model.best.value.has(trial.number)}
                  isCurrent={item.index === cursor}
                  point={(isOver) => (model.pointed.value = isOver ? trial.number : null)}
                />
              )
            );
          })}
        </div>
      </div>
      {!rows.length && trials.length > 0 && <p class="faint">No trial is in all of the chosen ranges.</p>}
    </section>
  );
}

interface RowProps {
  trial: Trial;
  place: number;
  top: number;
  columns: Column[];
  grid: ReturnType<typeof layout>;
  isBest: boolean;
  isCurrent: boolean;
  point: (isOver: boolean) => void;
}

function Row({ trial, place, top, columns, grid, isBest, isCurrent, point }: RowProps) {
  const classes = ["sweep-row", isBest && "is-best", isCurrent && "is-current", jobOf(trial) !== null && "is-link"];
  return (
    <div
      class={classes.filter(Boolean).join(" ")}
      role="row"
      aria-rowindex={place + 2}
      style={{ ...grid, transform: `translateY(${top}px)`, height: `${HEIGHT}px` }}
      title={trial.why || undefined}
      onMouseEnter={() => point(true)}
      onMouseLeave={() => point(false)}
      onClick={(event) => (event.target as Element).closest("a") ?? openTrial(trial)}
    >
      {columns.map((one) => (
        <span key={one.key} role="cell" class={one.key.startsWith("m ") ? "sweep-value" : undefined}>
          <Cell column={one} trial={trial} isBest={isBest} />
        </span>
      ))}
    </div>
  );
}

function Cell({ column, trial, isBest }: { column: Column; trial: Trial; isBest: boolean }) {
  if (column.key === "state") return <Badge state={trial.state} />;
  if (column.key === "took") return <span class="faint">{duration(trial.seconds)}</span>;
  if (column.key === "job") {
    const job = jobOf(trial);
    return job === null ? null : <a href={to(`job/${job}`)}>{job}</a>;
  }
  if (column.key === NUMBER && isBest) {
    return (
      <>
        {trial.number} <span title="best">★</span>
      </>
    );
  }
  return <>{column.text(trial)}</>;
}
