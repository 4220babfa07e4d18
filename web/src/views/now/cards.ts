// A card in words.
import type { Gpu } from "../../api/types";
import { size } from "../../words";

/** What a card is called: `GPU 0`; its key where it has no number. */
export function cardName(gpu: Gpu): string {
  return gpu.index === null ? gpu.key : `GPU ${gpu.number ?? gpu.index}`;
}

export function load({ load_percent: percent }: Gpu): string {
  return percent === null ? "?" : `${Math.round(percent)} %`;
}

export function memory(gpu: Gpu): string {
  if (gpu.memory_total_bytes === null) return "?";
  return `${size(gpu.memory_used_bytes)} of ${size(gpu.memory_total_bytes)}`;
}
