// What this browser keeps for the page, between two visits. It may refuse, or have something else there.

export function remembered<T>(key: string, otherwise: T): T {
  try {
    const kept = JSON.parse(localStorage.getItem(key) ?? "null") as T | null;
    return kept !== null && Array.isArray(kept) === Array.isArray(otherwise) ? kept : otherwise;
  } catch {
    return otherwise;
  }
}

/** Returns whether it is kept: without, the page works until it is closed. */
export function remember(key: string, value: unknown): boolean {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false; // it is full, or switched off
  }
}
