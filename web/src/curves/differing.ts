// What several jobs differ in, for a legend: their parameters, and what else was asked for.
import type { Job } from "../api/types";

const PAIR = /^-{0,2}([A-Za-z_][\w.-]*)=(.*)$/s; // `lr=0.1`
const MOST_WORDS = 6; // differences that are shown of one job

/** A short text for each job, by which it is told from the others. */
export function differences(jobs: readonly Job[]): string[] {
  const settings = jobs.map(settingsOf);
  const keys = [...new Set(settings.flatMap((one) => [...one.keys()]))];
  const differing = keys.filter((key) => settings.some((one) => one.get(key) !== settings[0]!.get(key)));
  return settings.map((one) => {
    const found = differing.filter((key) => one.has(key)).map((key) => (one.get(key) ? `${key}=${one.get(key)}` : key));
    return found.slice(0, MOST_WORDS).join(" ") + (found.length > MOST_WORDS ? " …" : "");
  });
}

/** `--lr 0.1`, `--lr=0.1`, `lr=0.1` and words by their place; variables, the name and the GPUs that it asked for. */
function settingsOf(job: Job): Map<string, string> {
  const found = new Map<string, string>();
  const words = wordsOf(job.command);
  let place = 0;
  for (let index = 0; index < words.length; index++) {
    const word = words[index]!;
    const pair = PAIR.exec(word);
    const next = words[index + 1];
    if (pair) found.set(pair[1]!, pair[2]!);
    else if (/^--?[A-Za-z]/.test(word) && next !== undefined && !/^--?[A-Za-z]/.test(next) && !PAIR.test(next)) {
      found.set(word.replace(/^-+/, ""), next);
      index++;
    } else if (/^--?[A-Za-z]/.test(word)) found.set(word, "");
    else found.set(`word ${++place}`, word);
  }
  for (const [name, value] of Object.entries(job.env)) if (!name.startsWith("DIBS_")) found.set(name, value);
  if (job.name) found.set("name", job.name);
  if (job.array) found.set("task", String(job.array.task));
  found.set("GPUs", String(job.num_gpus));
  return found;
}

/** The words of a command line, as a shell would split a plain one. */
function wordsOf(command: string): string[] {
  return [...command.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'|[^\s"']+(?:"[^"]*"|'[^']*'|[^\s"'])*/gs)].map((found) => found[1] ?? found[2] ?? found[0]);
}
