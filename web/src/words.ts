// Times, sizes and counts as people read them.

export function size(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return "?";
  const units = ["B", "K", "M", "G", "T"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)}${units[unit]!}`;
}

/** `42s`, `3m 10s`, `2h 5m`, `4d 3h`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "";
  const total = Math.max(0, Math.round(seconds));
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)}s`;
  const parts: [number, string][] = [
    [Math.floor(total / 86400), "d"],
    [Math.floor(total / 3600) % 24, "h"],
    [Math.floor(total / 60) % 60, "m"],
    [total % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value}${unit}`)
    .join(" ");
}

/** `17`, or `17_4` for a task of an array: as it is typed to name the job. */
export function jobNumber(job: { id: number; array: { id: number; task: number } | null }): string {
  return job.array ? `${job.array.id}_${job.array.task}` : String(job.id);
}

/** `12 s ago`, `3 h ago`, or the day where it is longer ago. */
export function ago(at: string | null | undefined, now: number): string {
  if (!at) return "";
  const seconds = (now - Date.parse(at)) / 1000;
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return new Date(at).toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
}

export function clock(at: string | null | undefined): string {
  return at ? new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "";
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** `0.5 Wh`, `12.3 kWh`, `1516 kWh`: three digits, and all before the point. */
export function energy(wattHours: number): string {
  const [value, unit] = wattHours >= 1000 ? [wattHours / 1000, "kWh"] : [wattHours, "Wh"];
  return `${value >= 100 ? Math.round(value) : Number(value.toPrecision(3))} ${unit}`;
}
