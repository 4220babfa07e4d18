// What a card was in the steps of its history, and what it used: in words, in sums and in colours.
import type { CardPast } from "../../api/types";
import { size } from "../../words";

export const USES = ["job", "unused", "others", "idle", "lost", "unknown"] as const;
export type Use = (typeof USES)[number];

/** In the words of `dibs report`, and shorter; with the variable of the style sheet. */
export const LOOKS: Record<Use, { word: string; short: string; variable: string }> = {
  job: { word: "in use by jobs", short: "jobs", variable: "--busy" },
  unused: { word: "held without use", short: "unused", variable: "--held" },
  others: { word: "used by others", short: "others", variable: "--others" },
  idle: { word: "idle", short: "idle", variable: "--idle" },
  lost: { word: "lost", short: "lost", variable: "--bad" },
  unknown: { word: "unknown", short: "unknown", variable: "" }, // the ground's stripes
};

export const QUANTITIES = ["load", "memory", "power"] as const;
export type Quantity = (typeof QUANTITIES)[number];
export type Shown = Quantity | "use";

interface Kind {
  label: string;
  mean: (card: CardPast) => (number | null)[];
  most: (card: CardPast) => (number | null)[];
  text: (value: number) => string;
}

export const KINDS: Record<Quantity, Kind> = {
  load: { label: "Load", mean: (card) => card.load_percent, most: (card) => card.load_percent_max, text: (value) => `${Math.round(value)} %` },
  memory: { label: "Memory", mean: (card) => card.memory_used_bytes, most: (card) => card.memory_used_bytes_max, text: size },
  power: { label: "Power", mean: (card) => card.power_watts, most: (card) => card.power_watts_max, text: (value) => `${Math.round(value)} W` },
};

/** What full colour means for a card: of its power the most that any card had. */
export function full(quantity: Quantity, card: CardPast, cards: readonly CardPast[]): number {
  if (quantity === "load") return 100;
  if (quantity === "memory") return card.memory_total_bytes ?? highest(card.memory_used_bytes_max);
  return Math.max(1, ...cards.map((one) => highest(one.power_watts_max)));
}

export function secondsOf(card: CardPast, use: Use): number[] {
  return card[`${use}_seconds`];
}

/** `mean 63 %, at most 99 %`, or `jobs 60 %, idle 40 %`. */
export function summary(card: CardPast, shown: Shown): string {
  if (shown === "use") return partsInWords(USES.map((use) => [use, sum(secondsOf(card, use))] as const), "short");
  const { mean, most, text } = KINDS[shown];
  const values = mean(card);
  let [total, seconds] = [0, 0];
  values.forEach((value, step) => {
    const known = USES.slice(0, 4).reduce((all, use) => all + secondsOf(card, use)[step]!, 0);
    if (value !== null) [total, seconds] = [total + value * known, seconds + known];
  });
  return seconds ? `mean ${text(total / seconds)}, at most ${text(highest(most(card)))}` : "not known";
}

export function partsInWords(parts: readonly (readonly [Use, number])[], words: "word" | "short" = "word"): string {
  const all = parts.reduce((total, [, seconds]) => total + seconds, 0);
  return parts
    .map(([use, seconds]) => [LOOKS[use][words], Math.round((100 * seconds) / Math.max(1, all))] as const)
    .filter(([, percent]) => percent > 0)
    .map(([word, percent]) => `${word} ${percent} %`)
    .join(", ");
}

function highest(values: readonly (number | null)[]): number {
  return values.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
