import { count, duration } from "../../words";
import type { Prospect } from "./sending";

const SHOWN = 30;

/** Where and when each job would start. Neighbours that would do the same share a line. */
export function Prospects({ prospects }: { prospects: Prospect[] }) {
  const groups = grouped(prospects.map(sentence));
  const lessons = [...new Set(prospects.flatMap((one) => one.lessons ?? []).map((lesson) => lesson.sentence))];
  return (
    <section class="panel" aria-label="dry run">
      <h2>If you added {prospects.length === 1 ? "it" : "them"} now</h2>
      <ul class="prospects">
        {groups.slice(0, SHOWN).map(({ first, last, text }) => (
          <li key={first}>
            <b>{prospects.length === 1 ? "The job" : first === last ? `Job ${first}` : `Jobs ${first} to ${last}`}:</b> {text}
          </li>
        ))}
      </ul>
      {groups.length > SHOWN && <p class="faint">… and {count(groups.length - SHOWN, "more line")}</p>}
      {lessons.map((lesson) => (
        <p key={lesson} class="faint">
          {lesson}
        </p>
      ))}
    </section>
  );
}

function sentence({ gpus, starts_at, reason }: Prospect): string {
  const where = gpus?.length ? ` on GPU ${gpus.join(", ")}` : "";
  if (!reason) return `now${where}`;
  const why = reason.sentence.replace(/^(waits|is)\b/, "it $1");
  if (reason.code === "backend") return why; // another system decides, perhaps at once
  if (!starts_at) return `not yet; ${why}`;
  const left = (Date.parse(starts_at) - Date.now()) / 1000;
  return `${left > 60 ? `in about ${duration(left)}` : "soon"}${where}; ${why}`;
}

function grouped(texts: string[]): { first: number; last: number; text: string }[] {
  const groups: { first: number; last: number; text: string }[] = [];
  texts.forEach((text, place) => {
    const last = groups[groups.length - 1];
    if (last?.text === text) last.last = place + 1;
    else groups.push({ first: place + 1, last: place + 1, text });
  });
  return groups;
}
