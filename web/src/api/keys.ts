/** A new name for one call: repeated with it, the call does nothing twice. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
