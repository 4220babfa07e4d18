/** A sentence of the daemon's: what stands between backticks can be typed. */
export function Sentence({ text }: { text: string }) {
  return <>{text.split("`").map((part, place) => (place % 2 ? <code key={place}>{part}</code> : part))}</>;
}
