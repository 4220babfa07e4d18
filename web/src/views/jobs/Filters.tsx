import type { ComponentChildren, RefObject } from "preact";
import { useRef } from "preact/hooks";
import { get } from "../../api/client";
import type { Counts } from "../../api/types";
import { user } from "../../state/session";
import { useLive } from "../../state/useLive";
import type { Asked } from "./asked";

interface Props {
  asked: Asked;
  counts: Counts | null;
  search: RefObject<HTMLInputElement | null>;
  change: (query: Record<string, string | undefined>) => void;
  children: ComponentChildren;
}

interface Projects {
  projects: { name: string }[];
}

const GROUPS = [
  { label: "All", state: "" },
  { label: "Running", state: "running" },
  { label: "Suspended", state: "suspended" },
  { label: "Waiting", state: "queued,submitted,held" },
  { label: "Succeeded", state: "succeeded" },
  { label: "Failed", state: "failed,timed_out,lost" },
  { label: "Cancelled", state: "cancelled" },
];
const ORDERS = [
  ["newest", "newest first"],
  ["oldest", "oldest first"],
  ["ended", "last ended first"],
  ["turn", "in their turn"],
  ["priority", "by priority"],
  ["seconds", "longest first"],
  ["name", "by name"],
] as const;
const LONGEST = 200; // letters that the daemon searches for
const PAUSE = 250; // milliseconds after the last letter of a search

export function Filters({ asked, counts, search, change, children }: Props) {
  const projects = useLive((signal) => get<Projects>("v1/projects", {}, signal), [], { atMost: 10_000 });
  const timer = useRef(0);
  const type = (text: string) => {
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => change({ text }), PAUSE);
  };
  const number = (states: string) =>
    Object.entries(counts ?? {}).reduce((sum, [state, jobs]) => (!states || states.split(",").includes(state) ? sum + (jobs ?? 0) : sum), 0);
  const names = projects.data.value?.projects.map((one) => one.name).filter(Boolean) ?? [];
  return (
    <div class="filters">
      <div class="chips" role="group" aria-label="state">
        {GROUPS.map((group) => (
          <button key={group.label} class="chip" aria-pressed={asked.state === group.state} onClick={() => change({ state: group.state })}>
            {group.label} {counts && <span class="faint">{number(group.state).toLocaleString("en")}</span>}
          </button>
        ))}
      </div>
      <input
        ref={search}
        type="search"
        placeholder="Search ( / )"
        aria-label="search"
        maxLength={LONGEST}
        value={asked.text}
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
      />
      {names.length > 0 && (
        <select aria-label="project" value={asked.project} onChange={(event) => change({ project: event.currentTarget.value })}>
          <option value="">every project</option>
          {names.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      )}
      <select aria-label="user" value={asked.user} onChange={(event) => change({ user: event.currentTarget.value })}>
        <option value="">every user</option>
        <option value={user.value}>{user.value}</option>
      </select>
      <select aria-label="order" value={asked.order} onChange={(event) => change({ order: event.currentTarget.value, reverse: "" })}>
        {ordersWith(asked.order).map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      {children}
    </div>
  );
}

/** Those that are offered, and the one by which a column sorts. */
function ordersWith(order: string): readonly (readonly [string, string])[] {
  if (ORDERS.some(([value]) => value === order)) return ORDERS;
  return [...ORDERS, [order, `by ${order.replace(/^(param|metric)\./, "").replace(/_/g, " ")}`]];
}
