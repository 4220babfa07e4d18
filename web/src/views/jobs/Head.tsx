import type { RefObject } from "preact";
import { sayError } from "../../state/toasts";
import { NUMBER, type Column } from "./columns";
import type { JobPages } from "./pages";
import { allThatMatch, chooseAll, chooseNone, chosen } from "./selection";
import type { Order } from "./Table";

interface Props {
  place: RefObject<HTMLDivElement | null>;
  pages: JobPages;
  columns: Column[];
  order: Order;
  sort: (order: Order) => void;
}

/** What the columns are called. A click on one sorts by it, another one the other way round. */
export function Head({ place, pages, columns, order, sort }: Props) {
  return (
    <div class="job-head" role="rowgroup" ref={place}>
      <div class="job-row" role="row">
        <span role="columnheader">
          <ChooseAll pages={pages} />
        </span>
        {[NUMBER, ...columns].map((column) => (
          <span key={column.key} role="columnheader" aria-sort={wayOf(column, order)}>
            {column.order ? (
              <button class="quiet" title={`Sort by ${column.label}`} onClick={() => sort(nextOrder(column, order))}>
                {column.label}
                {wayOf(column, order) && <span aria-hidden="true">{wayOf(column, order) === "descending" ? " ↓" : " ↑"}</span>}
              </button>
            ) : (
              column.label
            )}
          </span>
        ))}
      </div>
    </div>
  );
}

/** All that match, also those that are not in sight. */
export function ChooseAll({ pages, word }: { pages: JobPages; word?: string }) {
  const all = allThatMatch.value;
  const change = (isOn: boolean) => {
    if (isOn) pages.all().then(chooseAll).catch(sayError);
    else chooseNone();
  };
  return (
    <label class="job-pick">
      <input
        type="checkbox"
        aria-label="choose all that match"
        title="Choose all that match"
        checked={all !== null}
        indeterminate={all ? all.without.size > 0 : chosen.value.size > 0}
        onChange={(event) => change(event.currentTarget.checked)}
      />
      {word}
    </label>
  );
}

function wayOf(column: Column, { order, reverse }: Order): "ascending" | "descending" | undefined {
  if (column === NUMBER) return order === "newest" ? "descending" : order === "oldest" ? "ascending" : undefined;
  if (!column.order || column.order !== order) return undefined;
  return Boolean(column.isDown) !== Boolean(reverse) ? "descending" : "ascending";
}

function nextOrder(column: Column, { order, reverse }: Order): Order {
  if (column === NUMBER) return { order: order === "newest" ? "oldest" : "newest", reverse: "" };
  return { order: column.order!, reverse: order === column.order && !reverse ? "true" : "" };
}
