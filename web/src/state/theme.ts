// Light or dark: as the system says, unless the user chose.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "dibs-theme";
const ORDER: Theme[] = ["system", "light", "dark"];

export const theme = signal<Theme>(chosen());

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
  localStorage.setItem(KEY, theme.value);
});

export function nextTheme(): void {
  theme.value = ORDER[(ORDER.indexOf(theme.value) + 1) % ORDER.length]!;
}

function chosen(): Theme {
  const kept = localStorage.getItem(KEY) as Theme | null;
  return kept && ORDER.includes(kept) ? kept : "system";
}
