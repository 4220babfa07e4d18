import type { Shape, Style } from "./marks";
import { SHADES } from "./ranking";

const PATHS: Record<Shape, string> = {
  dot: "M8 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8",
  ring: "M8 3a5 5 0 1 0 0 10 5 5 0 0 0 0-10",
  triangle: "M8 3l5 9H3z",
  cross: "M4 4l8 8M12 4l-8 8",
};

interface Props {
  styles: (Style & { word: string })[];
  line: string; // what the line is, if there is one
  isShaded?: boolean;
}

/** What the shapes and colours of a chart mean. */
export function Legend({ styles, line, isShaded }: Props) {
  return (
    <ul class="sweep-legend" aria-label="legend">
      {isShaded && (
        <li>
          worst{" "}
          {Array.from({ length: SHADES }, (_, shade) => (
            <i key={shade} class="sweep-shade" style={{ background: `var(--shade-${shade + 1})` }} />
          ))}{" "}
          best
        </li>
      )}
      {styles.map(({ shape, colour, word }) => (
        <li key={word}>
          <svg viewBox="0 0 16 16" class={shape === "dot" || shape === "triangle" ? "is-full" : ""} style={{ color: `var(${colour})` }} aria-hidden="true">
            <path d={PATHS[shape]} />
          </svg>
          {word}
        </li>
      ))}
      {line && (
        <li>
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <path d="M1 5h7v6h7" />
          </svg>
          {line}
        </li>
      )}
    </ul>
  );
}
