import type { Job } from "../../api/types";
import { Menu } from "../../parts/Menu";
import { allColumns, USUAL, type Column } from "./columns";

interface Props {
  columns: Column[];
  jobs: () => Iterable<Job>; // in which to look for parameters and metrics
  change: (query: Record<string, string | undefined>) => void;
}

/** Which columns are shown, and in which order. */
export function ColumnMenu({ columns, jobs, change }: Props) {
  return <Menu label="Columns">{() => <ColumnList columns={columns} jobs={jobs} change={change} />}</Menu>;
}

function ColumnList({ columns, jobs, change }: Props) {
  const keys = columns.map((column) => column.key);
  const others = allColumns(jobs()).filter((column) => !keys.includes(column.key));
  const show = (next: string[]) => change({ columns: next.join() === USUAL.join() ? undefined : next.join() });
  const move = (place: number, by: number) => {
    const next = [...keys];
    next.splice(place + by, 0, ...next.splice(place, 1));
    show(next);
  };
  return (
    <>
      <ul class="column-list">
        {columns.map((column, place) => (
          <li key={column.key}>
            <label>
              <input type="checkbox" checked disabled={keys.length === 1} onChange={() => show(keys.filter((key) => key !== column.key))} />{" "}
              {titleOf(column)}
            </label>
            <button class="quiet" aria-label={`move ${column.label} left`} disabled={place === 0} onClick={() => move(place, -1)}>
              ↑
            </button>
            <button class="quiet" aria-label={`move ${column.label} right`} disabled={place === keys.length - 1} onClick={() => move(place, 1)}>
              ↓
            </button>
          </li>
        ))}
        {others.map((column) => (
          <li key={column.key}>
            <label>
              <input type="checkbox" checked={false} onChange={() => show([...keys, column.key])} /> {titleOf(column)}
            </label>
          </li>
        ))}
      </ul>
      <button disabled={keys.join() === USUAL.join()} onClick={() => show(USUAL)}>
        The usual ones
      </button>
    </>
  );
}

/** Parameters and metrics may have the name of another column. */
function titleOf({ key, label }: Column): string {
  if (key.startsWith("param.")) return `parameter ${label}`;
  return key.startsWith("metric.") ? `metric ${label}` : label;
}
