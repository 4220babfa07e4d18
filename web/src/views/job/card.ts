// The numbers of a report card, in the words of `dibs info`.
import { energy, size } from "../../words";
import type { Used } from "./shapes";

export function card(used: Used): [string, string][] {
  const rows: [string, string][] = [];
  if (used.peak_vram_bytes !== null) {
    const of = used.vram_total_bytes ? ` of ${size(used.vram_total_bytes)}` : "";
    const peak = used.peak_vram_bytes ? `peak ${size(used.peak_vram_bytes)}` : "none";
    rows.push(["memory", `${peak}${of}${used.was_alone ? "" : ", not alone"}`]);
  }
  if (used.mean_load_percent !== null) rows.push(["load", `${Math.round(used.mean_load_percent)} %`]);
  if (used.energy_watt_hours !== null) rows.push(["energy", energy(used.energy_watt_hours)]);
  const host = [];
  if (used.mean_cpus !== null) host.push(`CPU ${Math.round(100 * used.mean_cpus)} %`);
  if (used.peak_mem_bytes !== null) host.push(`${size(used.peak_mem_bytes)} of memory`);
  if (host.length) rows.push(["host", host.join(", ")]);
  return rows;
}
