// Suspensions that this page has asked for: where one cannot be done, the user is told why.
import { get } from "../api/client";
import { onEvents } from "../api/stream";
import type { JobPage } from "../api/types";
import { count } from "../words";
import { say } from "./toasts";

const MOST = 500; // jobs in one address

const asked = new Set<number>();

onEvents((events) => {
  const isMeant = events.some((event) => event.kind === "events.missed" || (event.job !== null && asked.has(event.job)));
  if (isMeant && asked.size) void look();
});

export function tellOfRefusals(ids: number[]): void {
  for (const id of ids.slice(0, MOST)) asked.add(id);
  void look(); // it may have been refused before the answer came
}

async function look(): Promise<void> {
  try {
    const { jobs } = await get<JobPage>("v1/jobs", { ids: [...asked].join(), limit: MOST });
    const pending = new Set(jobs.filter((job) => job.suspension?.phase === "suspending").map((job) => job.id));
    const refused = jobs.filter(({ id, suspension: one }) => asked.has(id) && one?.phase === "over" && one.why_not && !one.suspended_at);
    for (const id of asked) if (!pending.has(id)) asked.delete(id);
    const [first, ...others] = refused;
    if (!first) return;
    const more = others.length ? ` (and ${count(others.length, "other")})` : "";
    const { rung, why_not: why } = first.suspension!;
    const does = rung === "checkpoint" ? "saves its work and ends, and is held then" : "runs on";
    say(`Job ${first.id} ${does}: ${why}${more}`, true);
  } catch {
    // The connection is lost: when it is there again, an event says that some were missed.
  }
}
